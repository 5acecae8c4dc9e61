//! The two ways out of a drill: to nodes, which are asked and never told anything; and to receivers, of whom
//! there is none.

use crate::egress::{Dial, DialError, HttpReply, HttpRequest, Url};
use crate::store::{stand_in, stood_for};
use crate::webhook::{
    self, Headers, ID_HEADER, SIGNATURE_HEADER, Scheme, TIMESTAMP_HEADER, VerifyKey, Window,
};
use bytes::Bytes;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use thiserror::Error;

/// All that a node is asked. None of these changes anything at a node.
const READING: [&str; 24] = [
    "debug_traceBlockByHash",
    "eth_call",
    "eth_chainId",
    "eth_getBalance",
    "eth_getBlockByHash",
    "eth_getBlockByNumber",
    "eth_getBlockReceipts",
    "eth_getLogs",
    "eth_getTransactionByHash",
    "eth_getTransactionReceipt",
    "eth_syncing",
    "getbestblockhash",
    "getblock",
    "getblockchaininfo",
    "getblockhash",
    "getblockheader",
    "getchaintips",
    "getnetworkinfo",
    "getrawmempool",
    "getrawtransaction",
    "trace_block",
    "txpool_content",
    "waitfornewblock",
    "web3_clientVersion",
];

/// The paths that nodes are read by.
const READING_PATH: &str = "/rest/";

/// A request that a drill does not make.
#[derive(Debug, Error)]
#[error("a drill only reads: {0} was not sent")]
struct Refused(String);

/// A way to a node for questions alone.
#[derive(Debug)]
pub(super) struct ReadingDial<D>(D);

impl<D> ReadingDial<D> {
    pub(super) fn new(dial: D) -> ReadingDial<D> {
        ReadingDial(dial)
    }
}

/// What of a request is no question, if anything.
fn refused(request: &HttpRequest) -> Option<String> {
    let Some(body) = &request.body else {
        let is_reading = Url::parse(&request.url).is_ok_and(|url| url.path().starts_with(READING_PATH));
        return (!is_reading).then(|| "a path".to_owned());
    };
    let calls = match serde_json::from_slice(body) {
        Ok(Value::Array(calls)) => calls,
        Ok(call) => vec![call],
        Err(_) => return Some("a body that is no JSON".to_owned()),
    };
    calls.iter().find_map(|call| match call["method"].as_str() {
        Some(method) if READING.contains(&method) => None,
        Some(method) => Some(method.to_owned()),
        None => Some("a call without a method".to_owned()),
    })
}

impl<D: Dial> Dial for ReadingDial<D> {
    async fn send(&self, request: HttpRequest) -> Result<HttpReply, DialError> {
        match refused(&request) {
            Some(what) => Err(DialError::Broken(Refused(what).into())),
            None => self.0.send(request).await,
        }
    }

    fn reset(&self) {
        self.0.reset();
    }

    fn dials(&self) -> u64 {
        self.0.dials()
    }
}

/// What a receiver that is none has got: of each endpoint and event the SHA-256 of the body, and what was
/// wrong with it, if anything.
#[derive(Debug, Default)]
pub(super) struct Got {
    pub(super) bodies: BTreeMap<(String, String), [u8; 32]>,
    pub(super) faults: Vec<String>,
}

/// A receiver that takes everything and tells nobody. It opens no socket.
#[derive(Clone, Debug)]
pub(super) struct NullReceiver {
    got: Arc<Mutex<Got>>,
    now_secs: i64,
}

impl NullReceiver {
    pub(super) fn new(at_ms: i64) -> NullReceiver {
        NullReceiver {
            got: Arc::default(),
            now_secs: at_ms / 1_000,
        }
    }

    /// What has come since it was last asked.
    pub(super) fn take(&self) -> Got {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Got> {
        self.got.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which endpoint and event it is, or what is wrong with it.
    fn read(&self, request: &HttpRequest) -> Result<(String, String), String> {
        let endpoint = stood_for(&request.url).ok_or("it is not for an endpoint of the copy")?;
        let header = |name| {
            let mut headers = request.headers.iter();
            headers
                .find(|(known, _)| known == name)
                .map(|(_, value)| value.as_str())
        };
        let headers = Headers {
            id: header(ID_HEADER),
            timestamp: header(TIMESTAMP_HEADER),
            signature: header(SIGNATURE_HEADER),
        };
        let event = headers.id.unwrap_or_default().to_owned();
        // The newest of an endpoint's secrets is one that signs.
        let keys: Vec<VerifyKey> = [Scheme::V1, Scheme::V1a]
            .into_iter()
            .filter_map(|scheme| VerifyKey::parse(&stand_in(endpoint, scheme, 0)).ok())
            .collect();
        let window = Window {
            now_secs: self.now_secs,
            tolerance_secs: 0,
        };
        let body = request.body.as_deref().unwrap_or_default();
        webhook::verify(headers, body, &keys, window)
            .map_err(|error| format!("{event} to {endpoint}: {error}"))?;
        Ok((endpoint.to_owned(), event))
    }
}

impl Dial for NullReceiver {
    async fn send(&self, request: HttpRequest) -> Result<HttpReply, DialError> {
        let body = request.body.as_deref().unwrap_or_default();
        let digest = Sha256::digest(body).into();
        let read = self.read(&request);
        let status = if read.is_ok() { 204 } else { 400 };
        let mut got = self.lock();
        match read {
            Ok(which) => {
                if got.bodies.get(&which).is_some_and(|before| *before != digest) {
                    let (endpoint, event) = &which;
                    let fault = format!("{event} to {endpoint}: other bytes under one id");
                    got.faults.push(fault);
                }
                got.bodies.insert(which, digest);
            }
            Err(fault) => got.faults.push(fault),
        }
        Ok(HttpReply {
            status,
            retry_after_secs: None,
            body: Bytes::new(),
        })
    }

    fn reset(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    #[derive(Default)]
    struct Counting(Arc<AtomicU64>);

    impl Dial for Counting {
        async fn send(&self, _: HttpRequest) -> Result<HttpReply, DialError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(HttpReply {
                status: 200,
                retry_after_secs: None,
                body: Bytes::new(),
            })
        }

        fn reset(&self) {}
    }

    fn request(url: &str, body: Option<&str>) -> HttpRequest {
        HttpRequest {
            body: body.map(|body| Bytes::copy_from_slice(body.as_bytes())),
            url: url.to_owned(),
            headers: Vec::new(),
            deadline: Duration::from_secs(1),
            body_bytes_max: 1,
        }
    }

    #[tokio::test]
    async fn a_writing_rpc_is_refused() {
        let sent = Arc::new(AtomicU64::new(0));
        let dial = ReadingDial::new(Counting(sent.clone()));
        let node = "http://127.0.0.1:8332/";
        let refused = [
            (node, Some(r#"{"method":"sendrawtransaction","params":["00"]}"#)),
            (node, Some(r#"{"method":"eth_sendRawTransaction"}"#)),
            (node, Some(r#"{"method":"invalidateblock"}"#)),
            (node, Some(r#"[{"method":"getblockhash"},{"method":"stop"}]"#)),
            (node, Some(r#"{"method":"GETBLOCK"}"#)),
            (node, Some(r#"{"id":1}"#)),
            (node, Some("getblock")),
            ("http://127.0.0.1:8332/wallet/", None),
            ("http://127.0.0.1:8332/x?/rest/", None),
        ];
        for (url, body) in refused {
            let answer = dial.send(request(url, body)).await;
            assert!(matches!(answer, Err(DialError::Broken(_))), "{url} {body:?}");
        }
        assert_eq!(sent.load(Ordering::Relaxed), 0, "nothing of that left us");
        let asked = [
            (node, Some(r#"{"method":"getblockchaininfo"}"#)),
            (node, Some(r#"[{"method":"getblockhash"},{"method":"getblock"}]"#)),
            ("http://127.0.0.1:8332/rest/block/00.bin", None),
        ];
        for (url, body) in asked {
            assert!(dial.send(request(url, body)).await.is_ok(), "{url} {body:?}");
        }
        assert_eq!(sent.load(Ordering::Relaxed), 3);
    }

    fn callback(endpoint: &str, event: &str, body: &str, scheme: Scheme) -> HttpRequest {
        let key = webhook::Key::parse(&stand_in(endpoint, scheme, 0)).unwrap();
        let headers = webhook::headers(event, 1_700_000_000, body.as_bytes(), &[key]).unwrap();
        let mut request = request(&format!("https://drill.invalid/{endpoint}"), Some(body));
        request.headers = headers.map(|(name, value)| (name.into(), value)).to_vec();
        request
    }

    #[tokio::test]
    async fn the_receiver_that_is_none_checks_what_it_gets() {
        let receiver = NullReceiver::new(1_700_000_000_123);
        let status = async |request| receiver.send(request).await.unwrap().status;
        assert_eq!(status(callback("ep_1", "evt_1", "{}", Scheme::V1)).await, 204);
        assert_eq!(status(callback("ep_2", "evt_1", "{}", Scheme::V1a)).await, 204);
        let mut forged = callback("ep_1", "evt_2", "{}", Scheme::V1);
        forged.body = Some(Bytes::from_static(b"{ }"));
        assert_eq!(status(forged).await, 400);
        assert_eq!(status(request("https://shop.example/", Some("{}"))).await, 400);
        assert_eq!(
            status(callback("ep_1", "evt_1", "{\"x\":1}", Scheme::V1)).await,
            204
        );
        let got = receiver.take();
        assert_eq!((got.bodies.len(), got.faults.len()), (2, 3), "{:?}", got.faults);
        assert!(got.faults[2].ends_with("other bytes under one id"));
        assert!(receiver.take().bodies.is_empty());
    }
}
