//! What we sign is accepted by the official Rust package, and what we accept is signed.

use axum::http::HeaderMap;
use creditd::chance::Chance;
use creditd::clock::Clock;
use creditd::webhook::{
    self, Headers, ID_HEADER, Key, KeyError, SIGNATURE_HEADER, Scheme, SignError, TIMESTAMP_HEADER,
    VerifyError, VerifyKey, Window,
};

const SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
const OTHER: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const PRIVATE: &str = "whsk_nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=";
const PUBLIC: &str = "whpk_11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";
const ID: &str = "evt_27UH4WbU6Z5A5EzD8u03UvzRbpk";
const AT: i64 = 1_649_367_553;
const BODY: &[u8] = br#"{"email":"test@example.com","username":"test_user"}"#;
const WINDOW: Window = Window {
    now_secs: AT,
    tolerance_secs: 300,
};

fn keys(texts: &[&str]) -> Vec<Key> {
    texts.iter().map(|text| Key::parse(text).unwrap()).collect()
}

fn verify_keys(texts: &[&str]) -> Vec<VerifyKey> {
    texts.iter().map(|text| VerifyKey::parse(text).unwrap()).collect()
}

fn now_secs() -> i64 {
    Clock::real().now_ms() / 1000
}

#[test]
fn the_official_package_accepts_what_we_sign_under_each_live_key() {
    // The last one stands for letters of more than one byte, and for a body that is no JSON.
    for body in [
        BODY,
        b"{}",
        "{\"memo\":\"caf\u{e9} \u{1f980}\"}".as_bytes(),
        b"",
        b"a.b.c",
    ] {
        let fresh = webhook::fresh_key(Scheme::V1, Chance::real()).unwrap();
        let fresh_text = fresh.to_secret().reveal().to_owned();
        let mut signers = keys(&[SECRET, PRIVATE]);
        signers.push(fresh);
        let mut headers = HeaderMap::new();
        for (name, value) in webhook::headers(ID, now_secs(), body, &signers).unwrap() {
            headers.insert(name, value.parse().unwrap());
        }
        for secret in [SECRET, &fresh_text] {
            standardwebhooks::Webhook::new(secret)
                .unwrap()
                .verify(body, &headers)
                .unwrap_or_else(|error| panic!("{body:?}: {error:?}"));
        }
        let stranger = standardwebhooks::Webhook::new(OTHER).unwrap();
        assert!(
            stranger.verify(body, &headers).is_err(),
            "a key that did not sign"
        );
        let ours = standardwebhooks::Webhook::new(SECRET).unwrap();
        assert!(ours.verify(b"{\"altered\":1}", &headers).is_err());
    }
}

#[test]
fn we_accept_what_the_official_package_signs() {
    let signature = standardwebhooks::Webhook::new(SECRET)
        .unwrap()
        .sign(ID, AT, BODY)
        .unwrap();
    assert_eq!(signature, webhook::sign(ID, AT, BODY, &keys(&[SECRET])).unwrap());
    let at = AT.to_string();
    let headers = Headers {
        id: Some(ID),
        timestamp: Some(&at),
        signature: Some(&signature),
    };
    assert_eq!(
        webhook::verify(headers, BODY, &verify_keys(&[SECRET]), WINDOW),
        Ok(())
    );
}

/// Fixed values: a change of the signed bytes must not go unnoticed. The first is a test vector of the
/// official packages; the key pair is that of RFC 8032, 7.1, test 1.
#[test]
fn signatures_have_fixed_values() {
    let id = "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk";
    let shared = "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=";
    let pair = webhook::sign(id, AT, BODY, &keys(&[PRIVATE])).unwrap();
    assert!(pair.starts_with("v1a,") && pair.len() == 4 + 88, "{pair}");
    let both = webhook::sign(id, AT, BODY, &keys(&[SECRET, PRIVATE])).unwrap();
    assert_eq!(both, format!("{shared} {pair}"));
    assert_eq!(keys(&[PRIVATE])[0].public_text().unwrap(), PUBLIC);
    assert_eq!(keys(&[SECRET])[0].public_text(), None);
}

#[test]
fn the_receiver_of_a_pair_needs_only_the_public_half() {
    let at = AT.to_string();
    let signature = webhook::sign(ID, AT, BODY, &keys(&[PRIVATE])).unwrap();
    let headers = Headers {
        id: Some(ID),
        timestamp: Some(&at),
        signature: Some(&signature),
    };
    for key in [PUBLIC, PRIVATE] {
        let keys = verify_keys(&[OTHER, key]);
        assert_eq!(webhook::verify(headers, BODY, &keys, WINDOW), Ok(()));
        assert_eq!(
            webhook::verify(headers, b"{}", &keys, WINDOW),
            Err(VerifyError::NoMatch)
        );
    }
    let shared = verify_keys(&[SECRET]);
    assert_eq!(
        webhook::verify(headers, BODY, &shared, WINDOW),
        Err(VerifyError::NoMatch)
    );
}

#[test]
fn what_is_not_believed_and_why() {
    use VerifyError::{BadId, BadTimestamp, MissingHeader, NoMatch, TooManySignatures};
    let signature = webhook::sign(ID, AT, BODY, &keys(&[SECRET])).unwrap();
    let at = AT.to_string();
    let good = Headers {
        id: Some(ID),
        timestamp: Some(&at),
        signature: Some(&signature),
    };
    let id = |id| Headers { id, ..good };
    let time = |timestamp| Headers { timestamp, ..good };
    let signed = |signature| Headers { signature, ..good };
    let bare = signature.strip_prefix("v1,").unwrap();
    let one_of_several = format!("v2,x v1 v1,AAAA , {signature}");
    let (asymmetric, unknown) = (format!("v1a,{bare}"), format!("v2,{bare}"));
    let many = vec![signature.as_str(); 33].join(" ");
    let cases = [
        (good, Ok(())),
        (signed(Some(&one_of_several)), Ok(())),
        (id(None), Err(MissingHeader(ID_HEADER))),
        (id(Some("")), Err(BadId)),
        (id(Some("evt.1")), Err(BadId)),
        (id(Some("evt 1")), Err(BadId)),
        (id(Some("evt_1")), Err(NoMatch)),
        (time(None), Err(MissingHeader(TIMESTAMP_HEADER))),
        (time(Some("")), Err(BadTimestamp)),
        (time(Some("+1649367553")), Err(BadTimestamp)),
        (time(Some("1649367553.0")), Err(BadTimestamp)),
        (time(Some("99999999999999999999")), Err(BadTimestamp)),
        (time(Some("01649367553")), Err(NoMatch)),
        (time(Some("1649367554")), Err(NoMatch)),
        (signed(None), Err(MissingHeader(SIGNATURE_HEADER))),
        (signed(Some("")), Err(NoMatch)),
        (signed(Some(&signature[..40])), Err(NoMatch)),
        (signed(Some(bare)), Err(NoMatch)),
        (signed(Some(&asymmetric)), Err(NoMatch)),
        (signed(Some(&unknown)), Err(NoMatch)),
        (signed(Some(&many)), Err(TooManySignatures)),
    ];
    for (headers, expected) in cases {
        let got = webhook::verify(headers, BODY, &verify_keys(&[OTHER, SECRET]), WINDOW);
        assert_eq!(got, expected, "{headers:?}");
    }
}

#[test]
fn a_recording_is_too_old_and_a_wrong_clock_too_new() {
    let signature = webhook::sign(ID, AT, BODY, &keys(&[SECRET])).unwrap();
    let at = AT.to_string();
    let headers = Headers {
        id: Some(ID),
        timestamp: Some(&at),
        signature: Some(&signature),
    };
    for (late_secs, expected) in [
        (300, Ok(())),
        (301, Err(VerifyError::TooOld)),
        (-300, Ok(())),
        (-301, Err(VerifyError::TooNew)),
        (i64::MAX - AT, Err(VerifyError::TooOld)),
    ] {
        let window = Window {
            now_secs: AT + late_secs,
            tolerance_secs: 300,
        };
        let got = webhook::verify(headers, BODY, &verify_keys(&[SECRET]), window);
        assert_eq!(got, expected, "{late_secs}");
    }
}

#[test]
fn nothing_goes_out_unsigned_or_under_an_id_that_can_be_cut_elsewhere() {
    assert_eq!(webhook::sign(ID, AT, BODY, &[]), Err(SignError::NoKey));
    for id in ["", "evt.1", "evt 1", "evt\n1", "\u{e9}", &"x".repeat(257)] {
        assert_eq!(
            webhook::sign(id, AT, BODY, &keys(&[SECRET])),
            Err(SignError::BadId),
            "{id:?}"
        );
    }
}

#[test]
fn texts_of_keys() {
    for text in [SECRET, OTHER, PRIVATE] {
        assert_eq!(Key::parse(text).unwrap().to_secret().reveal(), text);
    }
    let unpadded = PRIVATE.trim_end_matches('=');
    assert_eq!(Key::parse(unpadded).unwrap(), Key::parse(PRIVATE).unwrap());
    let with_public_half = "whsk_nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2DXWpgBgrEKt9VL/tPJZAc6DuFy89qmIyWv\
                            Ahpo9wdRGg==";
    assert_eq!(
        Key::parse(with_public_half).unwrap(),
        Key::parse(PRIVATE).unwrap()
    );
    let wrong_half = with_public_half.replace("uf2DX", "uf2DY");
    let cases = [
        ("C2FVsBQIhrscChlQIMV+b5sSYspob7oD", KeyError::Prefix),
        (PUBLIC, KeyError::Prefix),
        ("whsec_***", KeyError::Base64),
        ("whsec_AAAA", KeyError::Length { bytes: 3 }),
        ("whsec_", KeyError::Length { bytes: 0 }),
        ("whsk_AAAA", KeyError::Length { bytes: 3 }),
        (&wrong_half, KeyError::NotOnCurve),
    ];
    for (text, expected) in cases {
        assert_eq!(Key::parse(text).unwrap_err(), expected, "{text}");
    }
    let zeros = format!("whpk_{}=", "A".repeat(43));
    for (text, expected) in [
        (zeros.as_str(), KeyError::NotOnCurve),
        ("whpk_AAAA", KeyError::Length { bytes: 3 }),
    ] {
        assert_eq!(VerifyKey::parse(text).unwrap_err(), expected, "{text}");
    }
    for (bytes, is_good) in [(23, false), (24, true), (64, true), (65, false)] {
        assert_eq!(Key::shared(&vec![7; bytes]).is_ok(), is_good, "{bytes}");
    }
}

#[test]
fn fresh_keys_differ_and_no_key_prints_itself() {
    for scheme in [Scheme::V1, Scheme::V1a] {
        let fresh = || webhook::fresh_key(scheme, Chance::real()).unwrap();
        let (one, two) = (fresh(), fresh());
        assert_ne!(one, two);
        assert_eq!(one.scheme(), scheme);
        assert_eq!(
            format!("{one:?} {:?} {}", one.verify_key(), one.to_secret()),
            "*** *** ***"
        );
    }
}
