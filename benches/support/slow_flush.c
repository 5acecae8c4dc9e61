/* Loaded before the C library: a flush takes $SLOW_FLUSH_US microseconds more than it does, as on a disk that has to
   write before it may say so. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <time.h>

static void wait_for_the_disk(void) {
    const char *given = getenv("SLOW_FLUSH_US");
    long micros = given ? atol(given) : 0;
    struct timespec left = {micros / 1000000, micros % 1000000 * 1000};
    if (micros <= 0) return;
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

int fsync(int fd) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    wait_for_the_disk();
    return real(fd);
}

int fdatasync(int fd) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    wait_for_the_disk();
    return real(fd);
}
