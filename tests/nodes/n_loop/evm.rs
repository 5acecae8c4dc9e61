//! The stage of a real EVM node (Anvil): four nodes that agree up to one block, and one address of all.

use std::cell::Cell;
use std::collections::BTreeMap;

use super::{Cast, Stage};
use crate::common::anvil::AnvilNode;
use crate::common::daemon::Setup;
use crate::common::evm_proxy::EvmProxy;

const CHAIN_ID: u64 = 31_337;

pub struct Anvil {
    base: AnvilNode,
    /// One for each branch.
    branches: [AnvilNode; 3],
    proxy: EvmProxy,
    shown: Cell<Option<usize>>,
    cast: Cast,
}

impl Anvil {
    pub fn new() -> Anvil {
        let base = AnvilNode::start(CHAIN_ID);
        base.mine(3);
        let branches = [(); 3].map(|()| base.start_twin());
        let addresses = ["a1", "a2", "a3", "a4"].map(|byte| format!("0x{}", byte.repeat(20)));
        let [one, two, three] = &branches;
        let (payer, other) = (base.account(0), base.account(1));
        let gone = one.pay(&payer, &addresses[0], 70_000);
        let invoiced = one.pay(&other, &addresses[2], 200_000);
        let raw = [&invoiced, &gone].map(|hash| one.raw(hash));
        one.mine(4);
        // It has the number of the payment that is gone.
        let rival = two.pay(&payer, &addresses[1], 50_000);
        two.mine(5);
        raw.iter().for_each(|raw| drop(three.send_raw(raw)));
        three.mine(6);
        let paid = [(gone, 70_000), (invoiced, 200_000), (rival, 0)];
        let paid = paid.into_iter().map(|(txid, net)| ((txid, 0), net));
        let cast = Cast {
            node: "Anvil",
            symbol: "ETH",
            addresses,
            invoices: ["0.0000000000002", "1"],
            paid: paid.collect::<BTreeMap<_, _>>(),
        };
        Anvil {
            proxy: EvmProxy::in_front_of(&base.url()),
            base,
            branches,
            shown: Cell::new(None),
            cast,
        }
    }

    fn shown(&self) -> &AnvilNode {
        let shown = self.shown.get();
        shown.map_or(&self.base, |branch| &self.branches[branch])
    }
}

impl Stage for Anvil {
    fn cast(&self) -> &Cast {
        &self.cast
    }

    fn setup(&self) -> Setup {
        Setup::for_evm(format!(
            "[[evm]]\nalias = \"dev\"\nchain_id = {CHAIN_ID}\ninstance = \"test\"\npoll_ms = 50\n\
             pending_ms = 50\nstart = {}\n[[evm.endpoint]]\nname = \"own\"\nurl = \"{}\"\n\
             [evm.native]\nsymbol = \"ETH\"\ninner = \"traces\"\npolicy = [ {{ confirmations = 3 }} ]\n",
            self.base.height(),
            self.proxy.url(),
        ))
    }

    fn show(&self, branch: Option<usize>) {
        self.shown.set(branch);
        self.proxy.lead_to(&self.shown().url());
        self.proxy.forget_calls();
    }

    fn tip(&self) -> String {
        self.shown().tip()
    }
}
