//! Who is believed to be the receiver.

use super::*;

#[tokio::test]
async fn tls_asks_for_the_name_and_believes_nobody_else() {
    let (ours, strangers) = (Authority::new(), Authority::new());
    let connect = async |names: Names, server, host: &str| {
        let receiver = Receiver::https(server, ok);
        let policy = Policy::new(vec![Range::parse("127.0.0.0/8").unwrap()]);
        let dial = GuardedDial::new(policy, Arc::new(names), Some(&ours.file())).unwrap();
        let url = format!("https://{host}:{}/hook", receiver.address.port());
        (dial.send(request(url)).await, receiver.heard())
    };
    let names = || Names::answering(&[&["127.0.0.1"]]);
    let (reply, heard) = connect(names(), ours.server(&["shop.test"], |_| {}), "shop.test").await;
    assert_eq!(reply.unwrap().status, 200);
    assert_eq!(heard[0].sni.as_deref(), Some("shop.test"));
    assert!(heard[0].header("host").unwrap().starts_with("shop.test:"));
    let (reply, _) = connect(names(), ours.server(&["127.0.0.1"], |_| {}), "127.0.0.1").await;
    assert_eq!(reply.unwrap().status, 200);
    let expired = |params: &mut rcgen::CertificateParams| {
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    };
    let refused = [
        ("another name", ours.server(&["other.test"], |_| {}), "shop.test"),
        (
            "a name for an address",
            ours.server(&["shop.test"], |_| {}),
            "127.0.0.1",
        ),
        (
            "another authority",
            strangers.server(&["shop.test"], |_| {}),
            "shop.test",
        ),
        ("expired", ours.server(&["shop.test"], expired), "shop.test"),
    ];
    for (name, server, host) in refused {
        let (reply, heard) = connect(names(), server, host).await;
        let error = reply.unwrap_err();
        assert_eq!(error.code(), "tls", "{name}: {error:?}");
        assert!(heard.is_empty(), "{name}: the callback was sent");
    }
}

#[tokio::test]
async fn without_a_file_only_public_authorities_are_believed() {
    let receiver = Receiver::https(Authority::new().server(&["127.0.0.1"], |_| {}), ok);
    let dial = dial(&["127.0.0.1/32"], &Names::default());
    let error = dial
        .send(request(format!("https://{}/", receiver.address)))
        .await
        .unwrap_err();
    assert_eq!(error.code(), "tls", "{error:?}");
    // Nor is a receiver believed that does not speak TLS at all.
    let plain = Receiver::http(INSIDE, ok);
    let error = dial
        .send(request(format!("https://{}/", plain.address)))
        .await
        .unwrap_err();
    assert!(plain.heard().is_empty(), "{error:?}");
}

#[test]
fn a_file_of_authorities_must_hold_some() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ca.pem");
    let open = || {
        let names = Arc::new(Names::default());
        GuardedDial::new(Policy::default(), names, Some(&file)).map(drop)
    };
    assert!(
        open()
            .unwrap_err()
            .to_string()
            .starts_with("read certificates from ")
    );
    let damaged = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for (text, expected) in [
        ("", "holds no certificate"),
        ("x", "holds no certificate"),
        (damaged, "damaged"),
    ] {
        std::fs::write(&file, text).unwrap();
        let error = open().unwrap_err().to_string();
        assert!(error.contains(expected), "{text:?}: {error}");
    }
}
