//! Webhooks of others: what each known sender signs is believed, and nothing else is.

use creditd::webhook::{
    self, Digest, Encoding, HmacSettings, Identity, Incoming, Key, Pointer, Preset, Refused, SettingsError,
    Signed, TimeField, Verified, Verifier, VerifyKey, Window,
};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

pub(super) const AT: i64 = 1_700_000_000;
pub(super) const SECRET: &str = "whsec_test_secret_of_ours";

pub(super) fn window(now_secs: i64) -> Window {
    Window {
        now_secs,
        tolerance_secs: 300,
    }
}

fn headers(given: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    given.iter().map(owned).collect()
}

fn verify_at(
    verifier: &Verifier,
    given: &[(&str, &str)],
    body: &[u8],
    now_secs: i64,
) -> Result<Verified, Refused> {
    let headers = headers(given);
    let incoming = Incoming {
        headers: &headers,
        body,
    };
    verifier.verify(incoming, window(now_secs))
}

fn verify(verifier: &Verifier, given: &[(&str, &str)], body: &[u8]) -> Result<Verified, Refused> {
    verify_at(verifier, given, body, AT)
}

pub(super) fn preset(preset: Preset, secrets: &[&str]) -> Verifier {
    let secrets: Vec<&[u8]> = secrets.iter().map(|secret| secret.as_bytes()).collect();
    Verifier::hmac(preset.settings(), &secrets)
}

pub(super) fn mac(secret: &str, parts: &[&[u8]]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    parts.iter().for_each(|part| mac.update(part));
    const_hex::encode(mac.finalize().into_bytes())
}

fn stripe_header(secret: &str, at: i64, body: &[u8]) -> String {
    let signature = mac(secret, &[at.to_string().as_bytes(), b".", body]);
    format!("t={at},v1={signature},v0=6ffbb59b2300aae63f272406069a9788598b792a944a07aba816edb039989a39")
}

fn id_of(verified: Result<Verified, Refused>) -> String {
    verified.unwrap().event_id
}

/// The vector that GitHub publishes; the others are made with another implementation of HMAC.
#[test]
fn each_preset_believes_its_senders_signature() {
    let github = preset(Preset::GitHub, &["It's a Secret to Everybody"]);
    let signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    assert_eq!(
        id_of(verify(
            &github,
            &[("x-hub-signature-256", signature)],
            b"Hello, World!"
        )),
        "sha256:dffd6021bb2bd5b0af676290809ec3a53191dd81c7f70a4b28688a362182986f",
        "GitHub signs no id: the body's hash"
    );

    let stripe = preset(Preset::Stripe, &[SECRET]);
    let signature = "t=1700000000,v1=90089962cc8391af4f291a41c3c6929fd5d130af1659a54d42e4abe18b454a9d";
    let body = br#"{"id":"evt_1","pending_webhooks":1}"#;
    assert_eq!(
        id_of(verify(&stripe, &[("Stripe-Signature", signature)], body)),
        "evt_1"
    );

    let btcpay = preset(Preset::BtcPay, &["btcpay-secret-of-ours"]);
    let signature = "sha256=61a175b29ef58f3c7c1a6baf113be62adfdab6c09d7f8bafcd1013b79563b6db";
    let body = concat!(
        r#"{"deliveryId":"D1","originalDeliveryId":"D1","isRedelivery":false,"#,
        r#""type":"InvoicePaymentSettled"}"#
    );
    let given = [("BTCPay-Sig", signature)];
    assert_eq!(id_of(verify(&btcpay, &given, body.as_bytes())), "D1");

    let coinbase = preset(Preset::CoinbaseCommerce, &["7bf9d4c2-coinbase-secret"]);
    let signature = "2edea9342eaed3d8efcca304474af73b92de743d6cbf517838221d91417fd2c9";
    let body = concat!(
        r#"{"id":1,"scheduled_for":"2017-01-31T20:50:02Z","event":"#,
        r#"{"id":"24934862-d980-46cb-9402-43c81b0cdba6","type":"charge:confirmed"}}"#
    );
    let given = [("X-CC-Webhook-Signature", signature)];
    assert_eq!(
        id_of(verify(&coinbase, &given, body.as_bytes())),
        "24934862-d980-46cb-9402-43c81b0cdba6"
    );
}

/// Slack's published example: a time in a header of its own, a text before it.
#[test]
fn settings_fit_senders_without_a_preset() {
    let slack = HmacSettings {
        header: "X-Slack-Signature".to_owned(),
        separator: None,
        prefix: "v0=".to_owned(),
        encoding: Encoding::Hex,
        digest: Digest::Sha256,
        signed: Signed::parse("v0:{time}:{body}").unwrap(),
        time: Some(TimeField::Header("X-Slack-Request-Timestamp".to_owned())),
        identity: Identity::default(),
    };
    slack.check().unwrap();
    let verifier = Verifier::hmac(slack.clone(), &[b"8f742231b10e8888abcd99yyyzzz85a5"]);
    let body = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V\
                &channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=\
                &response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554\
                %2F96rGlfmibIGlgcZRskXaIFfN\
                &trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c";
    let given = [
        ("x-slack-request-timestamp", "1531420618"),
        (
            "x-slack-signature",
            "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
        ),
    ];
    verify_at(&verifier, &given, body.as_bytes(), 1_531_420_618 + 300).unwrap();
    let late = verify_at(&verifier, &given, body.as_bytes(), 1_531_420_618 + 301);
    assert_eq!(late, Err(Refused::TooOld));

    let base64 = HmacSettings {
        header: "X-Signature".to_owned(),
        prefix: String::new(),
        encoding: Encoding::Base64,
        digest: Digest::Sha512,
        signed: Signed::parse("{body}").unwrap(),
        time: None,
        ..slack
    };
    let verifier = Verifier::hmac(base64, &[b"shopify-like-secret"]);
    let signature =
        "YXS76o4szAMMrEDDV2cZMy7EyR1bDaOiXaga2QdiVU2fOdRvvvBgiXOjkWJI3U3Jh/F1ugCHxzunE/hK033Dnw==";
    verify(&verifier, &[("x-signature", signature)], br#"{"id":7}"#).unwrap();
}

#[test]
fn any_live_secret_will_do_and_no_other() {
    let body = br#"{"id":"evt_1"}"#;
    let both = preset(Preset::Stripe, &["the-old-secret-of-ours", SECRET]);
    for secret in ["the-old-secret-of-ours", SECRET] {
        let header = stripe_header(secret, AT, body);
        verify(&both, &[("Stripe-Signature", &header)], body).unwrap();
    }
    // While a secret is changed, Stripe signs with both and sends both.
    let (old, new) = (stripe_header("gone", AT, body), stripe_header(SECRET, AT, body));
    let new_item = new.split(',').nth(1).unwrap();
    let header = format!("{old},{new_item}");
    verify(&both, &[("Stripe-Signature", &header)], body).unwrap();
    let stranger = stripe_header("another-secret", AT, body);
    assert_eq!(
        verify(&both, &[("Stripe-Signature", &stranger)], body),
        Err(Refused::NoMatch)
    );
    let nobody = preset(Preset::Stripe, &[]);
    assert_eq!(
        verify(&nobody, &[("Stripe-Signature", &new)], body),
        Err(Refused::NoMatch)
    );
}

#[test]
fn stale_and_re_dated_requests_are_refused_both_ways() {
    let body = br#"{"id":"evt_1"}"#;
    let stripe = preset(Preset::Stripe, &[SECRET]);
    let header = stripe_header(SECRET, AT, body);
    for (late_secs, expected) in [
        (300, None),
        (301, Some(Refused::TooOld)),
        (-300, None),
        (-301, Some(Refused::TooNew)),
    ] {
        let got = verify_at(&stripe, &[("Stripe-Signature", &header)], body, AT + late_secs);
        assert_eq!(got.err(), expected, "{late_secs}");
    }
    // A recording with a new date is signed no more.
    let later = AT + 86_400;
    let re_dated = header.replace(&AT.to_string(), &later.to_string());
    assert_eq!(
        verify_at(&stripe, &[("Stripe-Signature", &re_dated)], body, later),
        Err(Refused::NoMatch)
    );
    // Two dates, of which one is signed.
    let two_dates = format!("t={later},{header}");
    for now_secs in [AT, later] {
        assert_eq!(
            verify_at(&stripe, &[("Stripe-Signature", &two_dates)], body, now_secs),
            Err(Refused::BadTime)
        );
    }
}

#[test]
fn a_time_in_the_body_is_looked_at_after_the_signature() {
    let settings = HmacSettings {
        time: Some(TimeField::Body(Pointer::parse("/timestamp").unwrap())),
        ..Preset::BtcPay.settings()
    };
    settings.check().unwrap();
    let verifier = Verifier::hmac(settings, &[SECRET.as_bytes()]);
    for (body, expected) in [
        (r#"{"timestamp":1700000000}"#, None),
        (r#"{"timestamp":"1700000000"}"#, None),
        (r#"{"timestamp":1700000000.5}"#, Some(Refused::BadTime)),
        (r#"{"timestamp":-1}"#, Some(Refused::BadTime)),
        (r#"{"timestamp":1600000000}"#, Some(Refused::TooOld)),
        (r#"{"timestamp":1800000000}"#, Some(Refused::TooNew)),
        ("{}", Some(Refused::BadTime)),
        ("no JSON", Some(Refused::BadTime)),
    ] {
        let signature = format!("sha256={}", mac(SECRET, &[body.as_bytes()]));
        let got = verify(&verifier, &[("BTCPay-Sig", &signature)], body.as_bytes());
        assert_eq!(got.err(), expected, "{body}");
        let forged = verify(&verifier, &[("BTCPay-Sig", "sha256=00")], body.as_bytes());
        assert_eq!(forged.err(), Some(Refused::NoMatch), "{body}");
    }
}

/// Where only an unsigned header names the event, anybody with one recording could make it another event.
#[test]
fn event_ids_come_from_signed_bytes_only() {
    let body = br#"{"zen":"Design for failure."}"#;
    let github = preset(Preset::GitHub, &[SECRET]);
    let signature = format!("sha256={}", mac(SECRET, &[body]));
    let with_id = |id| {
        let given = [
            ("X-GitHub-Delivery", id),
            ("webhook-id", id),
            ("X-Hub-Signature-256", signature.as_str()),
        ];
        id_of(verify(&github, &given, body))
    };
    assert_eq!(with_id("one"), with_id("two"));

    let stripe = preset(Preset::Stripe, &[SECRET]);
    for (body, expected) in [
        (r#"{"id":"evt_9","object":"event"}"#, Some("evt_9")),
        (r#"{"id":17}"#, Some("17")),
        (r#"{"id":1.5}"#, None),
        (r#"{"id":""}"#, None),
        (r#"{"id":null}"#, None),
        (r#"{"id":{"id":"evt_9"}}"#, None),
        ("[]", None),
        ("no JSON", None),
        ("", None),
    ] {
        let header = stripe_header(SECRET, AT, body.as_bytes());
        let id = id_of(verify(&stripe, &[("Stripe-Signature", &header)], body.as_bytes()));
        match expected {
            Some(expected) => assert_eq!(id, expected, "{body}"),
            None => assert!(id.starts_with("sha256:") && id.len() == 71, "{body}: {id}"),
        }
    }
    let long = format!(r#"{{"id":"{}"}}"#, "x".repeat(257));
    let header = stripe_header(SECRET, AT, long.as_bytes());
    let id = id_of(verify(&stripe, &[("Stripe-Signature", &header)], long.as_bytes()));
    assert!(id.starts_with("sha256:") && id.len() == 71, "{id}");
}

/// BTCPay sends an event again under a new `deliveryId`: the same event, and nothing that it holds differs.
#[test]
fn a_redelivery_is_the_same_event_with_the_same_content() {
    let cases = [
        (
            Preset::BtcPay,
            r#"{"deliveryId":"D1","originalDeliveryId":"D1","isRedelivery":false,"invoiceId":"I"}"#,
            r#"{"deliveryId":"D2","originalDeliveryId":"D1","isRedelivery":true,"invoiceId":"I"}"#,
            r#"{"deliveryId":"D2","originalDeliveryId":"D1","isRedelivery":true,"invoiceId":"J"}"#,
        ),
        (
            Preset::Stripe,
            r#"{"id":"evt_1","pending_webhooks":2,"data":1}"#,
            r#"{"id":"evt_1","pending_webhooks":1,"data":1}"#,
            r#"{"id":"evt_1","pending_webhooks":1,"data":2}"#,
        ),
        (
            Preset::CoinbaseCommerce,
            r#"{"id":1,"scheduled_for":"a","event":{"id":"E","data":1}}"#,
            r#"{"id":2,"scheduled_for":"b","event":{"id":"E","data":1}}"#,
            r#"{"id":2,"scheduled_for":"b","event":{"id":"E","data":2}}"#,
        ),
    ];
    for (which, first, again, other) in cases {
        let verifier = preset(which, &[SECRET]);
        let seen = |body: &str| {
            let settings = which.settings();
            let signature = match which {
                Preset::Stripe => stripe_header(SECRET, AT, body.as_bytes()),
                _ => format!("{}{}", settings.prefix, mac(SECRET, &[body.as_bytes()])),
            };
            verify(&verifier, &[(&settings.header, &signature)], body.as_bytes()).unwrap()
        };
        assert_eq!(seen(first), seen(again), "{which:?}");
        assert_eq!(seen(first).event_id, seen(other).event_id, "{which:?}");
        assert_ne!(seen(first).fingerprint, seen(other).fingerprint, "{which:?}");
    }
}

#[test]
fn headers_that_can_be_read_in_two_ways_are_refused() {
    let body = br#"{"id":"evt_1"}"#;
    let stripe = preset(Preset::Stripe, &[SECRET]);
    let good = stripe_header(SECRET, AT, body);
    let signature = good.split("v1=").nth(1).unwrap().split(',').next().unwrap();
    let many = format!("t={AT},{}", vec![format!("v1={signature}"); 32].join(","));
    let missing = Refused::MissingHeader("Stripe-Signature".to_owned());
    let repeated = Refused::RepeatedHeader("Stripe-Signature".to_owned());
    let cases = [
        (vec![], missing),
        (
            vec![
                ("Stripe-Signature", good.as_str()),
                ("stripe-signature", good.as_str()),
            ],
            repeated,
        ),
        (
            vec![("Stripe-Signature", many.as_str())],
            Refused::TooManySignatures,
        ),
        (vec![("Stripe-Signature", "")], Refused::BadTime),
        (vec![("Stripe-Signature", "t=,v1=00")], Refused::BadTime),
        (
            vec![("Stripe-Signature", "t=+1700000000,v1=00")],
            Refused::BadTime,
        ),
        (vec![("Stripe-Signature", "t=1700000000")], Refused::NoMatch),
        (vec![("Stripe-Signature", "t=1700000000,v1=")], Refused::NoMatch),
        (vec![("Stripe-Signature", "t=1700000000,v1=zz")], Refused::NoMatch),
    ];
    for (given, expected) in cases {
        assert_eq!(verify(&stripe, &given, body), Err(expected), "{given:?}");
    }
    // Capital digits are read; a mixture is nobody's way to write hex, and one bit away from the right one.
    let upper = format!("t={AT},v1={}", signature.to_uppercase());
    verify(&stripe, &[("Stripe-Signature", &upper)], body).unwrap();
    let one = signature.find(|c: char| c.is_ascii_lowercase()).unwrap();
    let mut mixed = signature.to_owned();
    mixed.replace_range(one..=one, &signature[one..=one].to_uppercase());
    let mixed = format!("t={AT},v1={mixed}");
    assert_eq!(
        verify(&stripe, &[("Stripe-Signature", &mixed)], body),
        Err(Refused::NoMatch)
    );
}

#[test]
fn standard_webhooks_name_the_event_in_a_signed_header() {
    let key = Key::shared(&[7; 32]).unwrap();
    let verifier = Verifier::Standard(vec![key.verify_key()]);
    let body = br#"{"id":"in the body"}"#;
    let signed = webhook::headers("evt_1", AT, body, &[key]).unwrap();
    let given: Vec<(&str, &str)> = signed
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    assert_eq!(id_of(verify(&verifier, &given, body)), "evt_1");
    let mut renamed = given.clone();
    renamed[0].1 = "evt_2";
    assert_eq!(verify(&verifier, &renamed, body), Err(Refused::NoMatch));
    assert_eq!(verify_at(&verifier, &given, body, AT + 301), Err(Refused::TooOld));
    let mut twice = given.clone();
    twice.push(given[0]);
    assert_eq!(
        verify(&verifier, &twice, body),
        Err(Refused::RepeatedHeader("webhook-id".to_owned()))
    );
    assert_eq!(
        verify(&verifier, &given[1..], body),
        Err(Refused::MissingHeader("webhook-id".to_owned()))
    );
    assert!(VerifyKey::parse("whsec_short").is_err());
}

#[test]
fn settings_that_would_believe_too_much_are_refused() {
    for (template, expected) in [
        ("{body}", None),
        ("{time}.{body}", None),
        ("{body}.{time}", None),
        ("v0:{time}:{body}", None),
        ("https://example.com/hook{body}", None),
        ("", Some(SettingsError::Template)),
        ("{time}", Some(SettingsError::Template)),
        ("{body}{body}", Some(SettingsError::Template)),
        ("{time}.{time}.{body}", Some(SettingsError::Template)),
        ("{id}.{body}", Some(SettingsError::Template)),
        ("{body", Some(SettingsError::Template)),
        ("{time}{body}", Some(SettingsError::NoBoundary)),
        ("{body}{time}", Some(SettingsError::NoBoundary)),
        ("{time}0.{body}", Some(SettingsError::NoBoundary)),
        ("{body}.0{time}", Some(SettingsError::NoBoundary)),
    ] {
        assert_eq!(Signed::parse(template).err(), expected, "{template}");
    }
    let base = Preset::Stripe.settings();
    let time = |time: Option<TimeField>, template: &str| HmacSettings {
        time,
        signed: Signed::parse(template).unwrap(),
        ..base.clone()
    };
    let item = |start: &str| Some(TimeField::Item(start.to_owned()));
    let header = |name: &str| Some(TimeField::Header(name.to_owned()));
    for (settings, expected) in [
        (base.clone(), None),
        (time(header("X-Time"), "{time}.{body}"), None),
        (
            time(header("X-Time"), "{body}"),
            Some(SettingsError::TimeNotSigned),
        ),
        (time(item("t="), "{body}"), Some(SettingsError::TimeNotSigned)),
        (time(None, "{time}.{body}"), Some(SettingsError::NoTime)),
        (time(item(""), "{time}.{body}"), Some(SettingsError::TimeItem)),
        (time(item("v1=t"), "{time}.{body}"), Some(SettingsError::TimeItem)),
        (
            time(header("X Time"), "{time}.{body}"),
            Some(SettingsError::HeaderName),
        ),
        (
            HmacSettings {
                separator: None,
                ..base.clone()
            },
            Some(SettingsError::TimeItem),
        ),
        (
            HmacSettings {
                header: String::new(),
                ..base.clone()
            },
            Some(SettingsError::HeaderName),
        ),
    ] {
        assert_eq!(settings.check().err(), expected, "{settings:?}");
    }
    for preset in Preset::ALL {
        preset.settings().check().unwrap();
    }
    for text in ["", "/", "id", "data/id"] {
        assert!(Pointer::parse(text).is_err(), "{text}");
    }
}

#[test]
fn no_verifier_prints_a_secret() {
    for which in Preset::ALL {
        let text = format!("{:?}", preset(which, &[SECRET]));
        assert!(!text.contains("secret_of_ours"), "{text}");
    }
    let key = Key::shared(&[7; 32]).unwrap();
    assert_eq!(
        format!("{:?}", Verifier::Standard(vec![key.verify_key()])),
        "Standard([***])"
    );
}
