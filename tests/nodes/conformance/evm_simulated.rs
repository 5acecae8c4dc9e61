//! The simulated node of an EVM chain.

use creditd::chain::evm::EvmSource;
use creditd::clock::Clock;
use creditd::egress::HttpDial;
use creditd::rules::{BlockHash, Script, Txid};
use creditd::sandbox::evm::{
    Address, CallKind, EvmSandbox, InnerCall, Nonce, Stale, Token as TokenFacts, Tx, U256,
};
use creditd::store::NewChain;

use super::bench::REORG_WINDOW;
use super::evm::{CHAIN_ID, DECIMALS, NOBODY, Paid, WATCHED, Watching};
use super::stage::{Payee, Stage};

/// More than fees take.
const ETHER: u64 = 1_000_000_000_000_000_000;

pub struct Simulated<P> {
    node: EvmSandbox,
    token: Address,
    watching: Watching<P>,
    /// Who has paid what, and for how much per gas. Each pays once, so that no payment waits for another.
    made: Vec<(Txid, Address, u64)>,
    /// The tip that [`Stage::step_aside`] left.
    left: Option<BlockHash>,
}

impl<P: Paid> Stage for Simulated<P> {
    type Source = EvmSource<HttpDial>;

    const SHOWS_WAITING: bool = P::SHOWS_WAITING;

    const SEES_EVERY_SENDER: bool = P::HAS_COIN;

    const UNDOABLE: u32 = REORG_WINDOW + 10;

    fn open() -> Self {
        let node = EvmSandbox::start(CHAIN_ID, Clock::real()).unwrap();
        let token = Address::of("token");
        let facts = TokenFacts {
            decimals: DECIMALS,
            symbol: "TUSD".to_owned(),
        };
        node.set_token(token, facts);
        Self {
            node,
            token,
            watching: Watching::new(token.0),
            made: Vec::new(),
            left: None,
        }
    }

    fn source(&self) -> Self::Source {
        self.watching.source(self.node.url(), HttpDial::new())
    }

    fn chain(&self) -> NewChain {
        self.watching.chain()
    }

    fn watched(&self) -> Script {
        Watching::<P>::watched()
    }

    fn tip(&self) -> BlockHash {
        self.node.tip()
    }

    fn pay(&mut self, payee: Payee) -> Txid {
        let payer = Address::of(&format!("payer {}", self.made.len()));
        self.node.endow(payer, U256::from(ETHER));
        let txid = self.make(payer, payee, 2_000_000_000);
        self.send(txid);
        txid
    }

    fn rival(&mut self, txid: Txid, payee: Payee) -> Txid {
        let mut made = self.made.iter();
        let (_, payer, gas_price) = *made.find(|(made, ..)| *made == txid).unwrap();
        self.make(payer, payee, 2 * gas_price)
    }

    fn send(&mut self, txid: Txid) {
        self.node.resend(txid).unwrap();
    }

    fn mine(&mut self, first: &[Txid], count: u32) {
        self.node.mine_with(first).unwrap();
        for _ in 1..count {
            self.node.mine_with(&[]).unwrap();
        }
    }

    fn reorg(&mut self, depth: u32, count: u32, first: &[Txid]) {
        let tip = self.branch(depth, count, first);
        self.node.set_tip(tip, Stale::Forgotten).unwrap();
    }

    fn step_aside(&mut self, depth: u32, count: u32) {
        self.left = Some(self.node.tip());
        let tip = self.branch(depth, count, &[]);
        self.node.set_tip(tip, Stale::Kept).unwrap();
    }

    fn come_back(&mut self) {
        let left = self.left.take().expect("it has stepped aside");
        self.node.set_tip(left, Stale::Kept).unwrap();
    }
}

impl<P: Paid> Simulated<P> {
    fn make(&mut self, payer: Address, payee: Payee, gas_price: u64) -> Txid {
        let (to, amount) = match payee {
            Payee::Us(amount) => (Address(WATCHED), amount),
            Payee::Nobody => (Address(NOBODY), 5),
        };
        let amount = U256::from(amount);
        let mut tx = match P::IS_TOKEN {
            true => Tx::pay_token(self.token, payer, to, amount),
            false => Tx::pay(payer, to, amount),
        };
        if P::IS_INNER {
            tx.to = Some(Address::of("splitter"));
            tx.effects.calls = vec![InnerCall::new(CallKind::Call, to, amount)];
        }
        let txid = self.node.prepare(Tx {
            nonce: Nonce::Given(0),
            gas_price,
            ..tx
        });
        self.made.push((txid, payer, gas_price));
        txid
    }

    /// The end of a branch beside the last `depth` blocks.
    fn branch(&self, depth: u32, count: u32, first: &[Txid]) -> BlockHash {
        let fork = self.node.height() - u64::from(depth);
        let mut tip = self.node.block_hash(fork).unwrap();
        for number in 0..count {
            let txids = if number == 0 { first } else { &[] };
            tip = self.node.mine_on(tip, txids).unwrap();
        }
        tip
    }
}
