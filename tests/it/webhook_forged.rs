//! Webhooks of others: whatever is altered in a request, it is not believed, and nothing panics.

use super::webhook_incoming::{AT, SECRET, mac, preset, window};
use creditd::webhook::{self, Incoming, Key, Pointer, Preset, Signed, Verifier};
use proptest::prelude::*;

/// A request that each way to sign believes.
fn signed(way: usize, body: &[u8]) -> (Verifier, Vec<(String, String)>) {
    let Some(which) = Preset::ALL.get(way) else {
        let key = Key::shared(&[9; 32]).unwrap();
        let given = webhook::headers("evt_1", AT, body, std::slice::from_ref(&key)).unwrap();
        let given = given.map(|(name, value)| (name.to_owned(), value));
        return (Verifier::Standard(vec![key.verify_key()]), given.to_vec());
    };
    let settings = which.settings();
    let value = match which {
        Preset::Stripe => {
            let signature = mac(SECRET, &[AT.to_string().as_bytes(), b".", body]);
            format!("t={AT},v1={signature}")
        }
        _ => format!("{}{}", settings.prefix, mac(SECRET, &[body])),
    };
    (preset(*which, &[SECRET]), vec![(settings.header, value)])
}

proptest! {
    #[test]
    fn any_flipped_bit_is_refused(
        way in 0..5_usize,
        body in proptest::collection::vec(any::<u8>(), 1..200),
        place in any::<prop::sample::Index>(),
        bit in 0..7_u8,
        in_header in any::<bool>(),
    ) {
        let (verifier, mut given) = signed(way, &body);
        let now = window(AT);
        let whole = Incoming { headers: &given, body: &body };
        prop_assert!(verifier.verify(whole, now).is_ok());
        let mut altered = body.clone();
        if in_header {
            let at = place.index(given.iter().map(|(_, value)| value.len()).sum());
            let mut passed = 0;
            for (_, value) in &mut given {
                if at < passed + value.len() {
                    let mut bytes = value.clone().into_bytes();
                    bytes[at - passed] ^= 1 << bit;
                    *value = String::from_utf8(bytes).unwrap();
                    break;
                }
                passed += value.len();
            }
        } else {
            altered[place.index(body.len())] ^= 1 << bit;
        }
        let touched = Incoming { headers: &given, body: &altered };
        prop_assert!(verifier.verify(touched, now).is_err(), "{given:?}");
    }

    #[test]
    fn no_bytes_make_a_verifier_panic(
        way in 0..5_usize,
        body in proptest::collection::vec(any::<u8>(), 0..300),
        values in proptest::collection::vec("\\PC{0,80}|(t=|v1=|sha256=|v1,)?[0-9a-f,=. ]{0,80}", 0..4),
        is_signed in any::<bool>(),
        now_secs in any::<i64>(),
    ) {
        let (verifier, mut given) = signed(way, &body);
        if !is_signed {
            for (header, value) in given.iter_mut().zip(values) {
                header.1 = value;
            }
        }
        let incoming = Incoming { headers: &given, body: &body };
        let _ = verifier.verify(incoming, window(now_secs));
        let _ = verifier.verify(incoming, window(AT));
    }

    #[test]
    fn no_text_makes_the_settings_panic(
        text in "\\PC{0,40}|[{}a-z0-9./~]{0,20}|(\\{time\\}|\\{body\\}|.){0,5}",
    ) {
        let _ = Signed::parse(&text);
        if let Ok(at) = Pointer::parse(&text) {
            let _ = at.find_text(&serde_json::json!({"a": [1, {"b": "c"}]}));
        }
    }
}
