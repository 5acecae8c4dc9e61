//! The JSON-RPC client against what providers do: limits on questions, batches of many methods, keys in
//! tokens, headers and URLs.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use creditd::chain::rpc::{Auth, Limits, Place, Question, RpcClient, RpcError};
use creditd::clock::Clock;
use creditd::egress::{Dial, DialError, HttpDial, HttpReply, HttpRequest};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::receiver::{Authority, Receiver, answer};

const LIMITS: Limits = Limits {
    deadline: Duration::from_secs(20),
    body_bytes_max: 10_000,
};

/// One request as it was sent.
#[derive(Clone, Debug)]
struct Sent {
    url: String,
    headers: Vec<(String, String)>,
    questions: Value,
}

type Script = dyn FnMut(&Sent) -> (u16, Option<u64>, String) + Send;

/// A provider that answers as the test says and keeps what it was asked.
#[derive(Clone)]
struct Provider {
    script: Arc<Mutex<Box<Script>>>,
    sent: Arc<Mutex<Vec<Sent>>>,
}

impl Provider {
    fn new(script: impl FnMut(&Sent) -> (u16, Option<u64>, String) + Send + 'static) -> Provider {
        Provider {
            script: Arc::new(Mutex::new(Box::new(script))),
            sent: Arc::default(),
        }
    }

    fn client(&self, place: impl Into<Place>, auth: Auth) -> RpcClient<Provider> {
        RpcClient::new(self.clone(), place, auth, Clock::simulated(0))
    }

    fn sent(&self) -> Vec<Sent> {
        self.sent.lock().unwrap().clone()
    }
}

impl Dial for Provider {
    async fn send(&self, request: HttpRequest) -> Result<HttpReply, DialError> {
        let sent = Sent {
            url: request.url,
            headers: request
                .headers
                .iter()
                .map(|(name, value)| (name.to_string(), value.clone()))
                .collect(),
            questions: serde_json::from_slice(&request.body.unwrap_or_default()).unwrap(),
        };
        self.sent.lock().unwrap().push(sent.clone());
        let (status, retry_after_secs, body) = (self.script.lock().unwrap())(&sent);
        Ok(HttpReply {
            status,
            retry_after_secs,
            body: body.into(),
        })
    }

    fn reset(&self) {}
}

fn ok(sent: &Sent) -> (u16, Option<u64>, String) {
    let answer =
        |question: &Value| json!({"jsonrpc": "2.0", "id": question["id"], "result": question["method"]});
    let body = match &sent.questions {
        // Backwards, because nobody promises an order.
        Value::Array(all) => all.iter().rev().map(answer).collect(),
        one => answer(one),
    };
    (200, None, body.to_string())
}

fn questions() -> Vec<Question> {
    vec![
        Question::new("eth_getBlockByHash", json!(["0x1", false])),
        Question::new("eth_getLogs", json!([{"blockHash": "0x1"}])),
        Question::new("eth_chainId", json!([])),
    ]
}

async fn texts(client: &RpcClient<Provider>) -> Result<Vec<String>, RpcError> {
    let answers = client.mixed(&questions(), LIMITS).await?;
    let told = answers.into_iter().map(|answer| match answer.decode::<String>() {
        Ok(text) => text,
        Err(error) => error.to_string(),
    });
    Ok(told.collect())
}

async fn ask(client: &RpcClient<Provider>) -> Result<String, RpcError> {
    client.call("m", json!([]), LIMITS).await
}

#[tokio::test]
async fn methods_share_an_exchange_and_each_has_its_own_answer() {
    let provider = Provider::new(ok);
    let client = provider.client("http://node", Auth::None);
    let methods = ["eth_getBlockByHash", "eth_getLogs", "eth_chainId"];
    assert_eq!(texts(&client).await.unwrap(), methods);
    assert_eq!(provider.sent().len(), 1);
    assert_eq!(provider.sent()[0].questions[1]["params"][0]["blockHash"], "0x1");

    let provider = Provider::new(ok);
    let client = provider.client("http://node", Auth::None).with_batch_max(2);
    ask(&client).await.unwrap();
    assert_eq!(texts(&client).await.unwrap(), methods);
    let lengths: Vec<_> = provider
        .sent()
        .iter()
        .map(|sent| sent.questions.as_array().map(Vec::len))
        .collect();
    assert_eq!(
        lengths,
        [None, Some(2), None],
        "three do not fit, and one is no list"
    );
    let ids = |sent: &Sent| match &sent.questions {
        Value::Array(all) => all
            .iter()
            .map(|question| question["id"].as_u64().unwrap())
            .collect(),
        one => vec![one["id"].as_u64().unwrap()],
    };
    let ids: Vec<u64> = provider.sent().iter().flat_map(ids).collect();
    assert_eq!(ids, [1, 2, 3, 4], "single or not, they are numbered alike");
    assert!(client.mixed(&[], LIMITS).await.unwrap().is_empty());
}

#[tokio::test]
async fn one_entry_fails_alone_and_a_refusal_of_the_batch_is_every_entrys() {
    let provider = Provider::new(|sent| {
        let mut answers: Value = serde_json::from_str(&ok(sent).2).unwrap();
        let id = answers[1]["id"].clone();
        answers[1] = json!({"id": id, "error": {"code": -32000, "message": "unknown block"}});
        answers[0]["result"] = json!(7);
        (200, None, answers.to_string())
    });
    let told = texts(&provider.client("http://node", Auth::None)).await.unwrap();
    assert_eq!(told[0], "eth_getBlockByHash");
    assert_eq!(told[1], "the node says: unknown block (code -32000)");
    assert!(
        told[2].starts_with("cannot read the result in the answer to eth_chainId"),
        "{told:?}"
    );

    let refusal = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"batch too large"}}"#;
    let provider = Provider::new(|_| (200, None, refusal.to_owned()));
    let error = texts(&provider.client("http://node", Auth::None))
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), "the node says: batch too large (code -32600)");
}

/// Every way in which a provider says "not so often": nothing more is sent until the time has passed.
#[tokio::test(start_paused = true)]
async fn a_provider_that_has_had_enough_is_left_alone_and_then_asked_again() {
    let error = |code: i64, message: &str| {
        json!({"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": message}}).to_string()
    };
    let without_id = error(-32005, "rate limit exceeded").replace("\"id\":1", "\"id\":null");
    let cases = [
        (429, Some(7), String::new(), 7, "HTTP status 429: "),
        (429, None, "slow down".to_owned(), 1, "HTTP status 429: slow down"),
        (
            429,
            Some(3),
            error(429, "compute units"),
            3,
            "HTTP status 429: compute units",
        ),
        (503, Some(5), "busy".to_owned(), 5, "HTTP status 503: busy"),
        (
            429,
            Some(86_400),
            "tomorrow".to_owned(),
            60,
            "HTTP status 429: tomorrow",
        ),
        (200, None, error(-32005, "limit exceeded"), 1, "limit exceeded"),
        (200, None, error(-32016, "over rate limit"), 1, "over rate limit"),
        (400, None, error(429, "capacity exceeded"), 1, "capacity exceeded"),
        (200, None, without_id, 1, "rate limit exceeded"),
    ];
    for (status, retry_after_secs, body, pause_secs, words) in cases {
        let mut refusals = vec![(status, retry_after_secs, body.clone())];
        let provider = Provider::new(move |sent| refusals.pop().unwrap_or_else(|| ok(sent)));
        let client = provider.client("http://node", Auth::None);
        for _ in 0..3 {
            let error = ask(&client).await.unwrap_err();
            let expected = format!("over the node's limit, left alone for {pause_secs} s: {words}");
            assert_eq!(error.to_string(), expected, "{status} {body}");
            assert!(texts(&client).await.is_err());
        }
        assert_eq!(provider.sent().len(), 1, "it is left alone");
        let (left, why) = client.left_alone().unwrap();
        assert_eq!((left.as_secs(), why.as_str()), (pause_secs, words));
        Clock::simulated(0).sleep(Duration::from_secs(pause_secs)).await;
        assert!(client.left_alone().is_none());
        assert_eq!(ask(&client).await.unwrap(), "m");
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_inside_a_batch_pauses_too_and_keeps_the_other_answers() {
    let mut is_busy = true;
    let provider = Provider::new(move |sent| {
        let mut answers: Value = serde_json::from_str(&ok(sent).2).unwrap();
        if std::mem::take(&mut is_busy) {
            for at in [0, 1] {
                answers[at]["error"] = json!({"code": -32007, "message": "50/second request limit reached"});
            }
        }
        (200, None, answers.to_string())
    });
    let client = provider.client("http://node", Auth::None);
    let told = texts(&client).await.unwrap();
    assert_eq!(told[0], "eth_getBlockByHash");
    let limited = "over the node's limit, left alone for 1 s: 50/second request limit reached";
    assert_eq!(told[1..], [limited, limited]);
    assert!(matches!(ask(&client).await, Err(RpcError::RateLimited { .. })));
    assert_eq!(provider.sent().len(), 1);
    Clock::simulated(0).sleep(Duration::from_secs(1)).await;
    assert_eq!(texts(&client).await.unwrap()[1], "eth_getLogs");
}

/// A 503 without the wish to be left alone is any other trouble: bitcoind's queue is full for a moment.
#[tokio::test]
async fn a_503_without_a_wish_and_too_large_an_answer_are_no_limits() {
    let mut replies = vec![
        (503, None, "Work queue depth exceeded".to_owned()),
        (
            200,
            None,
            r#"{"id":2,"error":{"code":-32005,"message":"query returned more than 10000 results"}}"#
                .to_owned(),
        ),
    ];
    replies.reverse();
    let provider = Provider::new(move |sent| replies.pop().unwrap_or_else(|| ok(sent)));
    let client = provider.client("http://node", Auth::None);
    assert!(matches!(
        ask(&client).await,
        Err(RpcError::Http { status: 503, .. })
    ));
    assert!(matches!(
        ask(&client).await,
        Err(RpcError::Node { code: -32005, .. })
    ));
    assert_eq!(ask(&client).await.unwrap(), "m");
}

/// A folder with one secret in the file `secret`.
fn folder(secret: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    std::fs::write(&file, format!("{secret}\n")).unwrap();
    (folder, file)
}

/// Where the node is, what it wants, how that is found in a request, and how it should look there.
type Case = (Place, Auth, fn(&Sent) -> String, String);

#[tokio::test]
async fn every_secret_is_sent_where_it_belongs_and_read_again_when_it_is_refused() {
    let (_folder, file) = folder("first-secret");
    let of_url = |key: &str| format!("https://eth.example/v2/{key}/0123456789abcdef");
    let cases: [Case; 4] = [
        (
            "https://eth.example/".into(),
            Auth::Bearer(file.clone()),
            |sent| header(sent, "authorization"),
            "Bearer KEY".to_owned(),
        ),
        (
            "https://eth.example/".into(),
            Auth::Header {
                name: "x-api-key".to_owned(),
                value_file: file.clone(),
            },
            |sent| header(sent, "x-api-key"),
            "KEY".to_owned(),
        ),
        (
            "https://eth.example/".into(),
            Auth::UserPass {
                user: "bob".to_owned(),
                password_file: file.clone(),
            },
            |sent| {
                use base64::Engine as _;
                let sent = header(sent, "authorization");
                let pair = sent.strip_prefix("Basic ").unwrap();
                String::from_utf8(base64::engine::general_purpose::STANDARD.decode(pair).unwrap()).unwrap()
            },
            "bob:KEY".to_owned(),
        ),
        (
            Place::File(file.clone()),
            Auth::None,
            |sent| sent.url.clone(),
            of_url("KEY"),
        ),
    ];
    for (place, auth, shown, form) in cases {
        let text = |key: &str| match &place {
            Place::File(_) => of_url(key),
            Place::Url(_) => key.to_owned(),
        };
        for status in [401, 403] {
            std::fs::write(&file, text("first-secret")).unwrap();
            let wanted = Arc::new(Mutex::new("first-secret".to_owned()));
            let (expected, form) = (wanted.clone(), form.clone());
            let provider = Provider::new(move |sent| {
                let wanted = form.replace("KEY", &expected.lock().unwrap());
                if shown(sent) == wanted {
                    ok(sent)
                } else {
                    (status, None, shown(sent))
                }
            });
            let client = provider.client(place.clone(), auth.clone());
            ask(&client).await.unwrap();
            *wanted.lock().unwrap() = "second-secret".to_owned();
            let told = ask(&client).await.unwrap_err().to_string();
            let is_told = told.starts_with("unauthorized (") || told.starts_with("forbidden");
            assert!(
                is_told && !told.contains("secret/") && !told.contains("first"),
                "{told}"
            );
            std::fs::write(&file, text("second-secret")).unwrap();
            ask(&client).await.unwrap();
            assert_eq!(texts(&client).await.unwrap().len(), 3);
        }
    }
}

fn header(sent: &Sent, name: &str) -> String {
    let found = sent.headers.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value.clone()).unwrap_or_default()
}

#[tokio::test]
async fn a_file_that_holds_no_url_is_told_without_its_content() {
    let cases = [
        ("hunter2hunter2hunter2", "URL file unreadable (not a URL): "),
        (
            "wss://hunter2",
            "URL file unreadable (neither http:// nor https://): ",
        ),
        (
            "https://bob:hunter2@eth.example",
            "URL file unreadable (a user name or password in it",
        ),
    ];
    for (text, expected) in cases {
        let (_folder, file) = folder(text);
        let client = Provider::new(ok).client(Place::File(file), Auth::None);
        let told = ask(&client).await.unwrap_err().to_string();
        assert!(told.starts_with(expected) && !told.contains("hunter2"), "{told}");
    }
    let client = Provider::new(ok).client(Place::File("/nowhere".into()), Auth::None);
    assert_eq!(
        ask(&client).await.unwrap_err().to_string(),
        "URL file missing: /nowhere"
    );
}

fn echo(sent: &Sent) -> String {
    format!("no such app: {}", sent.url)
}

/// The same as an error of every question.
fn echo_each(sent: &Sent, code: i64) -> String {
    let answer =
        |question: &Value| json!({"id": question["id"], "error": {"code": code, "message": echo(sent)}});
    let body = match &sent.questions {
        Value::Array(all) => all.iter().map(answer).collect(),
        one => answer(one),
    };
    body.to_string()
}

/// Providers like to repeat the request in their errors.
#[tokio::test(start_paused = true)]
async fn whatever_repeats_a_secret_is_not_shown() {
    let (_folder, file) = folder("https://eth.example/v2/S3cretS3cretS3cret?token=0therS3cret");
    let scripts: [Box<Script>; 6] = [
        Box::new(move |sent| (404, None, echo(sent))),
        Box::new(move |sent| (429, None, echo(sent))),
        Box::new(move |sent| (503, Some(1), echo(sent))),
        Box::new(move |sent| (200, None, echo(sent))),
        Box::new(move |sent| (200, None, echo_each(sent, -32000))),
        Box::new(move |sent| (200, None, echo_each(sent, 429))),
    ];
    for script in scripts {
        let provider = Provider {
            script: Arc::new(Mutex::new(script)),
            sent: Arc::default(),
        };
        let client = provider.client(Place::File(file.clone()), Auth::None);
        let mut told = vec![format!("{:?}", ask(&client).await.unwrap_err())];
        Clock::simulated(0).sleep(Duration::from_secs(2)).await;
        told.push(format!(
            "{:?}",
            client.mixed(&questions(), LIMITS).await.map(|answers| {
                answers
                    .into_iter()
                    .map(|answer| answer.decode::<u64>().unwrap_err().to_string())
                    .collect::<Vec<_>>()
            })
        ));
        told.push(format!("{:?}", client.left_alone()));
        for text in told {
            assert!(!text.contains("S3cret"), "{text}");
        }
    }
}

#[tokio::test]
async fn a_node_behind_tls_is_believed_by_its_authority_and_no_other() {
    let authority = Authority::new();
    let node = Receiver::https(authority.server(&["127.0.0.1"], |_| {}), |heard, to| {
        let question: Value = serde_json::from_slice(&heard.body).unwrap();
        let body = json!({"id": question["id"], "result": "over tls"}).to_string();
        answer(to, 200, body.as_bytes())
    });
    let url = format!("https://{}/", node.address);
    let call = async |ca_file: Option<PathBuf>| {
        let dial = HttpDial::believing(ca_file);
        let client = RpcClient::new(dial, url.as_str(), Auth::None, Clock::real());
        let told = client.call::<String>("m", json!([]), LIMITS).await;
        told.unwrap_or_else(|error| format!("{error}: {error:?}"))
    };
    assert_eq!(call(Some(authority.file())).await, "over tls");
    for ca_file in [None, Some(Authority::new().file()), Some("/nowhere.pem".into())] {
        let told = call(ca_file.clone()).await;
        assert!(
            told.starts_with("no trusted TLS connection"),
            "{ca_file:?}: {told}"
        );
        assert_eq!(
            told.contains("nowhere"),
            ca_file == Some("/nowhere.pem".into()),
            "{told}"
        );
    }
    assert_eq!(node.heard().len(), 1);
}
