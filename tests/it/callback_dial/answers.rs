//! Receivers that misbehave, and what becomes of what they send.

use super::*;

/// Whoever drips, one way or another, is cut off at the deadline of the whole attempt.
#[tokio::test]
async fn slow_receivers_are_cut_off_at_the_deadline() {
    type Play = Box<dyn Fn(&Heard, &mut dyn Write) -> io::Result<()> + Send + Sync>;
    let plays: [(&str, Play); 4] = [
        (
            "body",
            Box::new(move |_, to| {
                to.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")?;
                drip(to, b"x".iter().cycle())
            }),
        ),
        (
            "headers",
            Box::new(move |_, to| {
                to.write_all(b"HTTP/1.1 200 OK\r\nX-Slow: ")?;
                drip(to, b"x".iter().cycle())
            }),
        ),
        (
            "status line",
            Box::new(|_, to| drip(to, b"HTTP/1.1 ".iter().chain([b'2'; 999].iter()))),
        ),
        (
            "100 Continue for ever",
            Box::new(|_, to| drip(to, b"HTTP/1.1 100 Continue\r\n\r\n".iter().cycle())),
        ),
    ];
    for (name, play) in plays {
        let receiver = Receiver::http(OUTSIDE, play);
        let dial = dial(&["127.0.0.2/32"], &Names::default());
        let url = format!("http://{}/", receiver.address);
        let mut request = request(url);
        request.deadline = Duration::from_millis(400);
        let error = dial.send(request).await.unwrap_err();
        assert!(
            matches!(error, DialError::TimedOut { deadline_ms: 400 }),
            "{name}: {error:?}"
        );
    }
}

#[tokio::test]
async fn silence_is_cut_off_at_the_deadline() {
    // The kernel takes the connection, nobody ever reads it. The second never speaks TLS.
    let silent = Tripwire::at((OUTSIDE, 0).into());
    let dial = dial(&["127.0.0.2/32"], &Names::default());
    for scheme in ["http", "https"] {
        let mut request = request(format!("{scheme}://127.0.0.2:{}/", silent.port()));
        request.deadline = Duration::from_millis(200);
        let error = dial.send(request).await.unwrap_err();
        assert_eq!(error.code(), "timed_out", "{scheme}: {error:?}");
    }
}

/// An answer that is too long is an answer: its status counts, its beginning is kept, its end is never read.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn gigabytes_are_cut() {
    for announced in [true, false] {
        let sent = Arc::new(AtomicU64::new(0));
        let (counter, gone) = (Arc::clone(&sent), Arc::new(AtomicUsize::new(0)));
        let end = Arc::clone(&gone);
        let receiver = Receiver::http(OUTSIDE, move |_, to| {
            let length = if announced {
                "Content-Length: 8000000000"
            } else {
                "Connection: close"
            };
            write!(to, "HTTP/1.1 200 OK\r\n{length}\r\n\r\n")?;
            for _ in 0..8_000_000 {
                if let Err(error) = to.write_all(&[b'x'; 1000]) {
                    end.store(1, Ordering::SeqCst);
                    return Err(error);
                }
                counter.fetch_add(1000, Ordering::SeqCst);
            }
            Ok(())
        });
        let dial = dial(&["127.0.0.2/32"], &Names::default());
        let reply = dial
            .send(request(format!("http://{}/", receiver.address)))
            .await
            .unwrap();
        assert_eq!((reply.status, &*reply.body), (200, &[b'x'; KEPT][..]));
        let is_gone = || (gone.load(Ordering::SeqCst) == 1).then_some(());
        wait_until("the connection is cut", PATIENCE, is_gone);
        // The rest is what the kernel's buffers hold.
        let sent = sent.load(Ordering::SeqCst);
        assert!(sent < 64 << 20, "{sent} bytes were taken");
    }
}

#[tokio::test]
async fn headers_without_end_are_cut() {
    let receiver = Receiver::http(OUTSIDE, |_, to| {
        to.write_all(b"HTTP/1.1 200 OK\r\n")?;
        loop {
            to.write_all(b"X-More: and more and more and more and more and more and more\r\n")?;
        }
    });
    let dial = dial(&["127.0.0.2/32"], &Names::default());
    let error = dial
        .send(request(format!("http://{}/", receiver.address)))
        .await
        .unwrap_err();
    assert_eq!(error.code(), "broken", "{error:?}");
}

/// A page of an ordinary size is read to its end and the connection used again; a larger one costs it.
#[tokio::test]
async fn a_connection_is_kept_unless_its_answer_was_cut() {
    for (bytes, connections) in [(BODY_BYTES_READ_MAX, 1), (16 << 20, 2)] {
        let receiver = Receiver::http(OUTSIDE, move |_, to| answer(to, 200, &vec![b'x'; bytes]));
        let dial = dial(&["127.0.0.2/32"], &Names::default());
        for _ in 0..2 {
            let reply = dial
                .send(request(format!("http://{}/", receiver.address)))
                .await
                .unwrap();
            assert_eq!((reply.status, reply.body.len()), (200, KEPT));
        }
        assert_eq!(receiver.connections(), connections, "{bytes}");
    }
}

#[tokio::test]
async fn answers_that_break_off_are_none() {
    for half in [
        "",
        "HTTP/1.1 2",
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
        "gopher!\r\n\r\n",
    ] {
        let receiver = Receiver::http(OUTSIDE, move |_, to| {
            to.write_all(half.as_bytes())?;
            Err(io::Error::other("cut"))
        });
        let dial = dial(&["127.0.0.2/32"], &Names::default());
        let url = format!("http://{}/hook?key=k3y", receiver.address);
        let error = dial.send(request(url)).await.unwrap_err();
        assert_eq!(error.code(), "broken", "{half:?}: {error:?}");
        assert!(
            !format!("{error:?}").contains("k3y"),
            "the URL may hold a key: {error:?}"
        );
    }
}

#[tokio::test]
async fn retry_after_is_read() {
    let cases = [
        ("Retry-After: 7\r\n", Some(7)),
        ("Retry-After: soon\r\n", None),
        (
            "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nRetry-After: Sun, 06 Nov 1994 08:50:37 GMT\r\n",
            Some(60),
        ),
        ("", None),
    ];
    for (headers, expected) in cases {
        let receiver = Receiver::http(OUTSIDE, move |_, to| answer_with(to, 429, headers, b""));
        let dial = dial(&["127.0.0.2/32"], &Names::default());
        let reply = dial
            .send(request(format!("http://{}/", receiver.address)))
            .await
            .unwrap();
        assert_eq!(
            (reply.status, reply.retry_after_secs),
            (429, expected),
            "{headers}"
        );
    }
}
