//! Parts: which answers under one key are a fault.

use crate::history::{Answer, Asked, KEPT_MS, Request, effects_max, wrong};
use creditd::clock::rfc3339;
use serde_json::json;

const AT_MS: i64 = 1_700_000_000_000;

pub fn run() {
    answered_otherwise();
    answered_across_a_jump();
}

/// An answer under a key that had none before.
fn told(id: &str, asked_ms: i64) -> Asked {
    Asked {
        client: 0,
        request: Request {
            method: "POST",
            path: "/v1/invoices".to_owned(),
            headers: vec![],
            body: String::new(),
        },
        key: Some("i-1".to_owned()),
        asked_ms,
        answered_ms: Some(asked_ms),
        answer: Some(Answer {
            status: 201,
            is_replayed: false,
            body: json!({"id": id, "created_at": rfc3339(AT_MS)})
                .to_string()
                .into_bytes(),
        }),
        era: 1,
        last_era: 1,
        shown_ms: (asked_ms, asked_ms),
        latest_ms: asked_ms,
        is_cut_off: false,
        is_parallel: false,
        pending: None,
    }
}

/// The same answer, told again.
fn replayed(mut asked: Asked) -> Asked {
    if let Some(answer) = &mut asked.answer {
        answer.is_replayed = true;
    }
    asked
}

/// Another answer under one key is a fault until the time of the first is over.
fn answered_otherwise() {
    let in_time = [told("one", AT_MS + KEPT_MS - 1), told("other", AT_MS)];
    assert_eq!(wrong(&in_time).len(), 1);
    let over = [told("one", AT_MS + KEPT_MS), told("other", AT_MS)];
    assert_eq!(wrong(&over), Vec::<String>::new());
    let [one, other] = over;
    // The time of the second is not.
    assert_eq!(wrong(&[one, other, told("third", AT_MS)]).len(), 1);
}

/// So too where the clock is set while the second is on its way, and its effect is counted once more.
fn answered_across_a_jump() {
    let across = |id: &str, jump_ms: i64| Asked {
        last_era: 2,
        shown_ms: (AT_MS, AT_MS + jump_ms),
        ..told(id, AT_MS)
    };
    let in_time = [told("one", AT_MS), across("other", KEPT_MS - 1)];
    assert_eq!(wrong(&in_time).len(), 1);
    let over = [
        told("one", AT_MS),
        across("other", KEPT_MS),
        replayed(across("other", KEPT_MS)),
    ];
    assert_eq!(wrong(&over), Vec::<String>::new());
    let again = [
        told("one", AT_MS),
        replayed(across("one", KEPT_MS)),
        across("other", KEPT_MS),
    ];
    assert_eq!(wrong(&again), Vec::<String>::new());
    let [one, other, _] = over;
    let third = [one, other, across("third", KEPT_MS)];
    assert_eq!(wrong(&third).len(), 1);

    let counted = |history: [Asked; 3]| {
        let wanted = json!({"reference": "order 1"}).to_string();
        let asked = history.map(|mut asked| {
            asked.request.body.clone_from(&wanted);
            asked
        });
        effects_max(&asked)["order 1"]
    };
    assert_eq!(counted(third), 2);
    assert_eq!(
        counted([across("one", 1), told("one", AT_MS), told("one", AT_MS)]),
        2
    );
    assert_eq!(
        counted([told("one", AT_MS), told("one", AT_MS), told("one", AT_MS)]),
        1
    );
}
