//! Steps on the EVM node.

use super::*;
use crate::sandbox::evm::{Effects, Mark, Token, Tx, U256};
use crate::sandbox::step::Tags;

/// The chain id of local development nodes.
pub(in crate::sandbox) const CHAIN_ID: u64 = 31_337;

const COIN: &str = "ETH";
const COIN_DECIMALS: u8 = 18;

/// The tokens that there are: contract, and what it says of itself.
pub(in crate::sandbox) fn tokens() -> [(Address, Token); 2] {
    let token = |symbol: &str, decimals| {
        let symbol = symbol.to_owned();
        (Address::of(&symbol), Token { decimals, symbol })
    };
    [token("TUSD", 6), token("TDAI", 18)]
}

/// What is paid.
struct Asset {
    contract: Option<Address>,
    symbol: String,
    decimals: u8,
}

impl Asset {
    fn coin() -> Asset {
        Asset {
            contract: None,
            symbol: COIN.to_owned(),
            decimals: COIN_DECIMALS,
        }
    }

    fn named(text: Option<&str>) -> Result<Asset, Refused> {
        let Some(text) = text.filter(|text| *text != COIN) else {
            return Ok(Asset::coin());
        };
        let address = EvmAddress::parse(text).ok().map(|address| Address(address.0));
        let is_it = |(contract, token): &(Address, Token)| token.symbol == text || address == Some(*contract);
        let found = tokens().into_iter().find(is_it).map(Asset::of_token);
        found.ok_or_else(|| {
            let symbols = tokens().map(|(_, token)| token.symbol).join(" or ");
            Refused::new(
                format!("there is no token {text}"),
                format!("say {symbols}, or leave it out for {COIN}"),
            )
        })
    }

    fn of_token((contract, token): (Address, Token)) -> Asset {
        Asset {
            contract: Some(contract),
            symbol: token.symbol,
            decimals: token.decimals,
        }
    }

    fn of_contract(contract: Option<Address>) -> Asset {
        let mut known = tokens().into_iter();
        let known = known.find(|(address, _)| Some(*address) == contract);
        known.map_or_else(Asset::coin, Asset::of_token)
    }

    fn amount(&self, text: &str) -> Result<U256, Refused> {
        let amount = amount(text, self.decimals, &self.symbol)?;
        let base = amount.to_units_string(0).parse();
        base.map_err(|_| refused(SandboxError::Funds))
    }

    fn shown(&self, amount: U256) -> String {
        let amount = Amount::from_be_bytes(amount.to_be_bytes());
        format!("{} {}", amount.to_units_string(self.decimals), self.symbol)
    }

    fn tx(&self, from: Address, to: Address, amount: U256) -> Tx {
        match self.contract {
            Some(contract) => Tx::pay_token(contract, from, to, amount),
            None => Tx::pay(from, to, amount),
        }
    }
}

impl Hand {
    pub(super) fn on_evm(&self, desk: &mut Desk, step: &Step) -> Result<Did, Refused> {
        match step {
            Step::Deposit(deposit) => self.pay_evm(desk, deposit),
            Step::DoubleSpend(rival) => self.double_spend_evm(desk, rival),
            Step::Replace(rival) => self.replace_evm(desk, rival),
            Step::Reorg(reorg) => both::reorg(&self.evm, desk, reorg),
            Step::Evict(of) => both::evict(&self.evm, desk, of),
            Step::Resend(of) => both::resend(&self.evm, desk, of),
            Step::Fail(of) => self.fail_evm(desk, of),
            Step::Tags(tags) => self.tags_evm(tags),
            Step::Lag(lag) => both::lag(&self.evm, *lag),
            Step::Mine(Blocks { blocks }) => both::mine(&self.evm, *blocks),
            Step::Node(state) => both::trouble(&self.evm, state),
        }
    }

    fn pay_evm(&self, desk: &mut Desk, deposit: &Deposit) -> Result<Did, Refused> {
        check_name(deposit.name.as_ref())?;
        let asset = Asset::named(deposit.token.as_deref())?;
        let (to, amount) = (payee(&deposit.to)?, asset.amount(&deposit.amount)?);
        let payer = Address::of(&format!("payer {}", desk.payers));
        desk.payers += 1;
        self.evm.endow(payer, amount.saturating_add(fee_money()));
        let tx = asset.tx(payer, to, amount);
        let txid = self.evm.send(tx).map_err(refused)?;
        let moved = desk.call(deposit.name.as_ref(), On::Evm, txid);
        let words = format!("sent {} to {}{moved}", asset.shown(amount), shown(to));
        Ok(Did::new(words).of(txid))
    }

    /// Makes a rival, and says whom it pays.
    fn rival_evm(&self, first: Txid, rival: &Rival, to: Option<&str>) -> Result<(Txid, String), Refused> {
        check_name(rival.name.as_ref())?;
        let Some(paid) = self.evm.payment_of(first) else {
            return Err(refused(SandboxError::Unknown(first.to_string())));
        };
        let asset = Asset::of_contract(paid.contract);
        let to = rival.to.as_deref().or(to).map_or(Ok(paid.to), payee)?;
        let told = rival.amount.as_ref();
        let amount = told.map_or(Ok(paid.amount), |amount| asset.amount(amount))?;
        self.evm.endow(paid.from, amount.saturating_add(fee_money()));
        let other = self
            .evm
            .rival(first, |tx| *tx = asset.tx(tx.from, to, amount))
            .map_err(refused)?;
        Ok((other, format!("{} to {}", asset.shown(amount), shown(to))))
    }

    fn double_spend_evm(&self, desk: &mut Desk, rival: &Rival) -> Result<Did, Refused> {
        let first = desk.find(On::Evm, &rival.tx)?;
        let (other, pays) = self.rival_evm(first, rival, Some(ELSEWHERE))?;
        let (block, how) = both::bring(&self.evm, first, other)?;
        let moved = desk.call(rival.name.as_ref(), On::Evm, other);
        let words = format!("used the nonce of {}, {how}: {pays}{moved}", rival.tx);
        Ok(Did::new(words).of(other).in_block(block))
    }

    fn replace_evm(&self, desk: &mut Desk, rival: &Rival) -> Result<Did, Refused> {
        let first = desk.find(On::Evm, &rival.tx)?;
        if self.evm.place(first) != Place::Waits {
            return Err(both::does_not_wait(&rival.tx));
        }
        let (other, pays) = self.rival_evm(first, rival, None)?;
        self.evm.resend(other).map_err(refused)?;
        let moved = desk.call(rival.name.as_ref(), On::Evm, other);
        let words = format!("replaced {}: {pays}, with a higher price{moved}", rival.tx);
        Ok(Did::new(words).of(other))
    }

    fn fail_evm(&self, desk: &Desk, of: &OfTx) -> Result<Did, Refused> {
        let txid = desk.find(On::Evm, &of.tx)?;
        self.evm.set_effects(txid, Effects::failed()).map_err(refused)?;
        let words = match self.evm.place(txid) {
            Place::Mined(depth) => format!(
                "{0} fails in the blocks to come; where it is mined it did not: `reorg {depth} --keep {0}`",
                of.tx
            ),
            Place::Waits | Place::Gone => format!("{} fails in the blocks to come", of.tx),
        };
        Ok(Did::new(words).of(txid))
    }

    fn tags_evm(&self, tags: &Tags) -> Result<Did, Refused> {
        let mark = |text: &Option<String>| text.as_deref().map(mark).transpose();
        let (safe, finalized) = (mark(&tags.safe)?, mark(&tags.finalized)?);
        if safe.is_none() && finalized.is_none() {
            return Err(Refused::new("neither tag was named", "name safe or finalized"));
        }
        let tip = self.evm.height();
        let stands = |mark: Option<Mark>, now: Option<u64>| mark.map_or(now, |mark| stands_at(mark, tip));
        let places = (
            stands(safe, self.evm.safe()),
            stands(finalized, self.evm.finalized()),
        );
        if let (Some(safe), Some(finalized)) = places
            && finalized > safe
        {
            return Err(Refused::new(
                format!("finalized at {finalized} would be above safe at {safe}: no node says so"),
                "move both at once, safe to the same place or above",
            ));
        }
        if let Some(safe) = safe {
            self.evm.set_safe(safe);
        }
        if let Some(finalized) = finalized {
            self.evm.set_finalized(finalized);
        }
        let height = |height: Option<u64>| height.map_or("nowhere".to_owned(), |height| height.to_string());
        Ok(Did::new(format!(
            "safe is at {}, finalized at {}",
            height(self.evm.safe()),
            height(self.evm.finalized())
        )))
    }
}

/// `32` blocks behind the tip, at height `@120`, or `none`.
fn mark(text: &str) -> Result<Mark, Refused> {
    let (number, at): (_, fn(u64) -> Mark) = match text.strip_prefix('@') {
        Some(height) => (height, Mark::At),
        None => (text, Mark::Behind),
    };
    // The parser would take a sign too.
    let digits = number.bytes().all(|byte| byte.is_ascii_digit());
    match number.parse() {
        Ok(number) if digits => Ok(at(number)),
        Ok(_) | Err(_) if text == "none" => Ok(Mark::Missing),
        Ok(_) | Err(_) => Err(Refused::new(
            format!("{text:?} is no place of a tag"),
            "say 32 for so many blocks behind the tip, @120 for a height, or none",
        )),
    }
}

/// The height of a tag, as the node has it: on a young chain the first block; `None` where it is nowhere.
fn stands_at(mark: Mark, tip: u64) -> Option<u64> {
    match mark {
        Mark::Behind(blocks) => Some(tip.saturating_sub(blocks)),
        Mark::At(height) => Some(height.min(tip)),
        Mark::Missing => None,
    }
}

/// What is wrong with a step, whatever the chain is like then.
pub(super) fn foresee(step: &Step) -> Result<(), Refused> {
    match step {
        Step::Deposit(deposit) => {
            let asset = Asset::named(deposit.token.as_deref())?;
            payee(&deposit.to)?;
            asset.amount(&deposit.amount).map(drop)
        }
        // How much is right depends on what the other one pays.
        Step::DoubleSpend(rival) | Step::Replace(rival) => {
            rival.to.as_deref().map_or(Ok(()), |to| payee(to).map(drop))
        }
        Step::Tags(tags) => {
            let mut places = [&tags.safe, &tags.finalized].into_iter().flatten();
            places.try_for_each(|place| mark(place).map(drop))
        }
        Step::Fail(_)
        | Step::Reorg(_)
        | Step::Evict(_)
        | Step::Resend(_)
        | Step::Lag(_)
        | Step::Mine(_)
        | Step::Node(_) => Ok(()),
    }
}

/// Enough for the fee of any transaction here.
fn fee_money() -> U256 {
    U256::from(10_u64.pow(18))
}

fn payee(text: &str) -> Result<Address, Refused> {
    if is_word(text) {
        return Ok(Address::of(text));
    }
    match EvmAddress::parse(text) {
        Ok(address) => Ok(Address(address.0)),
        Err(error) => Err(Refused::new(
            format!("{text:?} is no address of this chain: {error}"),
            "give 0x and 40 hex digits, or a label of up to 24 letters and digits such as order-1",
        )),
    }
}

/// With its checksum, as creditd prints it.
pub(in crate::sandbox) fn shown(address: Address) -> String {
    EvmAddress(address.0).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_that_is_further_behind_than_the_chain_is_long_stands_at_its_first_block() {
        assert_eq!(stands_at(Mark::Behind(2), 5), Some(3));
        assert_eq!(stands_at(Mark::Behind(32), 5), Some(0));
        assert_eq!(stands_at(Mark::At(9), 5), Some(5));
        assert_eq!(stands_at(Mark::Missing, 5), None);
    }
}
