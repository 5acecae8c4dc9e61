//! What a transaction has read and reads again for each of a block's payments: the few headers that they are
//! in, their chain, the number that versions begin with, who listens. A transaction sees one state of the
//! file and its own writes, so what is recalled here is right as long as whoever writes it forgets it: the
//! verbs that delete headers, and the one that adds an endpoint. Nothing is recalled beyond a transaction,
//! and that there is no such row never is.

use super::chains::ChainKey;
use crate::rules::{BlockHash, ChainId, HeldHeader};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// A block's payments ask for a handful; whoever goes through a chain must not keep all of it.
const HEADERS_MAX: usize = 64;

/// The endpoints of one owner, each with the types that it asked for.
pub(super) type Listeners = Rc<[(i64, String)]>;

/// See the module.
#[derive(Default)]
pub(super) struct Recall {
    generation: Cell<Option<i64>>,
    chain: RefCell<Option<(ChainKey, ChainId, Option<BlockHash>)>>,
    headers: RefCell<BTreeMap<(i64, u64), HeldHeader>>,
    listeners: RefCell<Option<(Option<i64>, Listeners)>>,
}

impl Recall {
    /// The generation, which only an opening changes.
    pub fn generation<E>(&self, read: impl FnOnce() -> Result<i64, E>) -> Result<i64, E> {
        if let Some(generation) = self.generation.get() {
            return Ok(generation);
        }
        let generation = read()?;
        self.generation.set(Some(generation));
        Ok(generation)
    }

    /// A chain's identity and genesis block, which never change once both are known.
    pub fn chain<E>(
        &self,
        key: ChainKey,
        read: impl FnOnce() -> Result<(ChainId, Option<BlockHash>), E>,
    ) -> Result<(ChainId, Option<BlockHash>), E> {
        if let Some((held, id, genesis)) = &*self.chain.borrow()
            && *held == key
        {
            return Ok((id.clone(), *genesis));
        }
        let (id, genesis) = read()?;
        if genesis.is_some() {
            *self.chain.borrow_mut() = Some((key, id.clone(), genesis));
        }
        Ok((id, genesis))
    }

    /// The header at a height.
    pub fn header<E>(
        &self,
        chain: ChainKey,
        height: u64,
        read: impl FnOnce() -> Result<Option<HeldHeader>, E>,
    ) -> Result<Option<HeldHeader>, E> {
        if let Some(held) = self.headers.borrow().get(&(chain.0, height)) {
            return Ok(Some(*held));
        }
        let read = read()?;
        if let Some(held) = read {
            let mut headers = self.headers.borrow_mut();
            if headers.len() == HEADERS_MAX {
                headers.clear();
            }
            headers.insert((chain.0, height), held);
        }
        Ok(read)
    }

    /// To be called by whoever deletes a header.
    pub fn forget_headers(&self) {
        self.headers.borrow_mut().clear();
    }

    /// The endpoints of an owner; `None` owns those that operators listen with.
    pub fn listeners<E>(
        &self,
        owner: Option<i64>,
        read: impl FnOnce() -> Result<Listeners, E>,
    ) -> Result<Listeners, E> {
        if let Some((held, listeners)) = &*self.listeners.borrow()
            && *held == owner
        {
            return Ok(listeners.clone());
        }
        let listeners = read()?;
        *self.listeners.borrow_mut() = Some((owner, listeners.clone()));
        Ok(listeners)
    }

    /// To be called by whoever adds an endpoint.
    pub fn forget_listeners(&self) {
        *self.listeners.borrow_mut() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn chain(recall: &Recall, genesis: Option<BlockHash>) -> Option<BlockHash> {
        let read = || Ok::<_, Infallible>((ChainId::from_stored("eip155:1".to_owned()), genesis));
        recall.chain(ChainKey(1), read).unwrap().1
    }

    #[test]
    fn what_is_not_there_yet_is_read_again() {
        let recall = Recall::default();
        assert_eq!(chain(&recall, None), None);
        assert_eq!(chain(&recall, Some(BlockHash([1; 32]))), Some(BlockHash([1; 32])));
        assert_eq!(chain(&recall, None), Some(BlockHash([1; 32])), "it never changes");
        let none = recall.header(ChainKey(1), 7, || Ok::<_, Infallible>(None));
        assert_eq!(none, Ok(None));
        assert!(recall.headers.borrow().is_empty());
    }
}
