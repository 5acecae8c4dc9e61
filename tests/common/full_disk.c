/* Loaded before the C library: while the file $FULL_DISK_FLAG exists, no file whose path begins with
   $FULL_DISK_FOLDER grows, and if the flag is not empty none is made either. What is there may be written over, as
   on a real disk that is full. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int refuses(int fd, off_t end) {
    const char *flag = getenv("FULL_DISK_FLAG"), *folder = getenv("FULL_DISK_FOLDER");
    char link[64], path[4096];
    struct stat file;
    ssize_t length;
    if (!flag || !folder || access(flag, F_OK) != 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strncmp(path, folder, strlen(folder)) == 0 && fstat(fd, &file) == 0 && S_ISREG(file.st_mode)
        && end > file.st_size;
}

static int refuses_new(const char *path, int flags) {
    const char *flag = getenv("FULL_DISK_FLAG"), *folder = getenv("FULL_DISK_FOLDER");
    struct stat file;
    return flag && folder && (flags & O_CREAT) && stat(flag, &file) == 0 && file.st_size > 0
        && strncmp(path, folder, strlen(folder)) == 0 && access(path, F_OK) != 0;
}

int open64(const char *path, int flags, ...) {
    static int (*real)(const char *, int, ...);
    va_list rest;
    if (!real) real = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64");
    va_start(rest, flags);
    mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    if (refuses_new(path, flags)) {
        errno = ENOSPC;
        return -1;
    }
    return real(path, flags, mode);
}

ssize_t write(int fd, const void *bytes, size_t count) {
    static ssize_t (*real)(int, const void *, size_t);
    if (!real) real = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    off_t at = lseek(fd, 0, SEEK_CUR);
    if (at >= 0 && refuses(fd, at + (off_t)count)) {
        errno = ENOSPC;
        return -1;
    }
    return real(fd, bytes, count);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (!real) real = (ssize_t (*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
    if (refuses(fd, at + (off_t)count)) {
        errno = ENOSPC;
        return -1;
    }
    return real(fd, bytes, count, at);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) {
    return pwrite64(fd, bytes, count, at);
}
