//! A real node of an EVM chain (Anvil). It forgets at once what it leaves, even what was only in the pool, so
//! the stage keeps every transaction and sends it again where another node would still have it.

use std::sync::{Arc, Mutex};

use creditd::chain::evm::EvmSource;
use creditd::egress::{Dial, DialError, HttpDial, HttpReply, HttpRequest};
use creditd::rules::{BlockHash, Script, Txid};
use creditd::store::NewChain;
use ethers_core::utils::keccak256;
use serde_json::{Value, json};

use super::bench::REORG_WINDOW;
use super::evm::{CHAIN_ID, DECIMALS, NOBODY, Paid, WATCHED, Watching};
use super::stage::{Payee, Stage};
use crate::common::anvil::{AnvilNode, hex};
use crate::common::contracts::{self, address, payments, uint};
use crate::common::evm::Splitter;

/// The accounts that the node signs for, but for the one that issues the token.
const PAYERS: usize = 9;

/// What is offered for gas; each rival offers twice as much.
const GAS_PRICE: u64 = 10_000_000_000;

/// A node that has shown another tip can never show the old one again. So a twin steps aside, and this is
/// who is asked.
#[derive(Clone)]
pub struct Switch {
    dial: Arc<HttpDial>,
    url: Arc<Mutex<String>>,
}

impl Switch {
    fn to(url: String) -> Self {
        Self {
            dial: Arc::new(HttpDial::new()),
            url: Arc::new(Mutex::new(url)),
        }
    }

    fn turn_to(&self, url: String) {
        *self.url.lock().unwrap() = url;
    }
}

impl Dial for Switch {
    async fn send(&self, mut request: HttpRequest) -> Result<HttpReply, DialError> {
        request.url = self.url.lock().unwrap().clone();
        self.dial.send(request).await
    }

    fn reset(&self) {
        self.dial.reset();
    }

    fn dials(&self) -> u64 {
        self.dial.dials()
    }
}

struct Made {
    txid: Txid,
    raw: Value,
    payer: usize,
    gas_price: u64,
}

pub struct Real<P> {
    node: AnvilNode,
    token: contracts::Token,
    splitter: Splitter,
    watching: Watching<P>,
    switch: Switch,
    /// The node that is shown instead.
    twin: Option<AnvilNode>,
    /// In the order made. Each payer pays once, so that no payment waits for another.
    made: Vec<Made>,
    payers: usize,
}

impl<P: Paid> Stage for Real<P> {
    type Source = EvmSource<Switch>;

    const SHOWS_WAITING: bool = P::SHOWS_WAITING;

    const SEES_EVERY_SENDER: bool = P::HAS_COIN;

    const UNDOABLE: u32 = REORG_WINDOW + 10;

    fn open() -> Self {
        let node = AnvilNode::start(CHAIN_ID);
        let token = contracts::Token::deploy(&node, "TUSD", DECIMALS);
        for payer in 1..=PAYERS {
            token.mint(&node, &node.account(payer), 1_000_000_000_000);
        }
        let splitter = Splitter::deploy(&node);
        node.mine(10);
        let contract = const_hex::decode_to_array(&token.address).unwrap();
        Self {
            switch: Switch::to(node.url()),
            node,
            token,
            splitter,
            watching: Watching::new(contract),
            twin: None,
            made: Vec::new(),
            payers: 0,
        }
    }

    fn source(&self) -> Self::Source {
        // Of a connection of its own, to whichever node is shown.
        let switch = Switch {
            dial: Arc::new(HttpDial::new()),
            url: Arc::clone(&self.switch.url),
        };
        self.watching.source("http://node".to_owned(), switch)
    }

    fn chain(&self) -> NewChain {
        self.watching.chain()
    }

    fn watched(&self) -> Script {
        Watching::<P>::watched()
    }

    fn tip(&self) -> BlockHash {
        let shown = self.twin.as_ref().unwrap_or(&self.node);
        BlockHash::from_hex(&shown.tip()[2..]).unwrap()
    }

    fn pay(&mut self, payee: Payee) -> Txid {
        self.payers += 1;
        assert!(self.payers <= PAYERS, "a payer for each payment");
        let txid = self.make(self.payers, payee, GAS_PRICE);
        self.send(txid);
        txid
    }

    fn rival(&mut self, txid: Txid, payee: Payee) -> Txid {
        let Made { payer, gas_price, .. } = *self.made(txid);
        self.make(payer, payee, 2 * gas_price)
    }

    fn send(&mut self, txid: Txid) {
        self.node.send_raw(&self.made(txid).raw);
    }

    fn mine(&mut self, first: &[Txid], count: u32) {
        let waiting = self.node.pending();
        waiting.iter().for_each(|hash| self.node.drop_transaction(hash));
        first.iter().for_each(|txid| self.send(*txid));
        self.node.mine(count);
        for hash in waiting {
            self.send_if_possible(Txid::from_hex(&hash[2..]).unwrap());
        }
    }

    fn reorg(&mut self, depth: u32, count: u32, first: &[Txid]) {
        let left = self.mined_in_last(depth);
        let first: Vec<(Value, u64)> = first
            .iter()
            .map(|txid| (self.made(*txid).raw.clone(), 0))
            .collect();
        self.node.reorg(depth.into(), &first);
        if count > depth {
            self.mine(&[], count - depth);
        }
        left.into_iter().for_each(|txid| self.send_if_possible(txid));
    }

    fn step_aside(&mut self, depth: u32, count: u32) {
        let twin = self.node.start_twin();
        twin.rollback(depth.into());
        if count > 0 {
            twin.mine(count);
        }
        let waiting = self.node.pending();
        let waiting = waiting.iter().map(|hash| Txid::from_hex(&hash[2..]).unwrap());
        for txid in self.mined_in_last(depth).into_iter().chain(waiting) {
            twin.send_raw(&self.made(txid).raw);
        }
        self.switch.turn_to(twin.url());
        self.twin = Some(twin);
    }

    fn come_back(&mut self) {
        self.switch.turn_to(self.node.url());
        self.twin = None;
    }
}

impl<P: Paid> Real<P> {
    fn made(&self, txid: Txid) -> &Made {
        let mut all = self.made.iter();
        all.find(|made| made.txid == txid).expect("made here")
    }

    /// Signs the payer's first transaction.
    fn make(&mut self, payer: usize, payee: Payee, gas_price: u64) -> Txid {
        let (to, amount) = match payee {
            Payee::Us(amount) => (const_hex::encode_prefixed(WATCHED), amount),
            Payee::Nobody => (const_hex::encode_prefixed(NOBODY), 5),
        };
        let mut fields = json!({
            "from": self.node.account(payer), "nonce": "0x0", "gas": "0x40000",
            "chainId": hex(CHAIN_ID.into()),
            "maxFeePerGas": hex(gas_price.into()), "maxPriorityFeePerGas": hex(gas_price.into()),
        });
        if P::IS_TOKEN {
            let arguments = [address(&to), uint(amount.into())];
            fields["to"] = json!(self.token.address);
            fields["data"] = json!(self.token.contract.call_data("transfer", &arguments));
        } else {
            (fields["to"], fields["value"]) = (json!(to), json!(hex(amount.into())));
        }
        if P::IS_INNER {
            let arguments = payments(&[(&to, amount.into())]);
            fields["to"] = json!(self.splitter.address);
            fields["data"] = json!(self.splitter.contract.call_data("split", &arguments));
        }
        let raw = self.node.call("eth_signTransaction", json!([fields]));
        let bytes = const_hex::decode(raw.as_str().unwrap()).unwrap();
        let txid = Txid(keccak256(&bytes));
        self.made.push(Made {
            txid,
            raw,
            payer,
            gas_price,
        });
        txid
    }

    /// What left the chain waits again, unless something else has its nonce now.
    fn send_if_possible(&self, txid: Txid) {
        let raw = &self.made(txid).raw;
        let _ = self.node.try_call("eth_sendRawTransaction", json!([raw]));
    }

    /// The transactions of the last blocks.
    fn mined_in_last(&self, depth: u32) -> Vec<Txid> {
        let height = self.node.height();
        let blocks = (height + 1 - u64::from(depth)..=height).map(|number| self.node.block(number));
        let hashes = blocks.flat_map(|block| block["transactions"].as_array().unwrap().clone());
        let txid = |hash: Value| Txid::from_hex(&hash.as_str().unwrap()[2..]).unwrap();
        hashes.map(txid).collect()
    }
}
