//! Asking ahead: several questions under way, their answers in order.

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::task::Poll;

/// Keeps so many questions under way, or answered and not yet taken. Whenever an answer is taken the next
/// question is begun first, however many answers wait: the node works on it while that one is filtered.
/// `StreamExt::buffered` begins nothing while it has an answer to give, so that node and follower take turns.
pub(super) struct Ahead<I: Iterator, T> {
    questions: I,
    most: usize,
    under_way: FuturesUnordered<I::Item>,
    answers: BTreeMap<usize, T>,
    taken: usize,
}

impl<I, T> Ahead<I, T>
where
    I: Iterator<Item: Future<Output = (usize, T)>>,
{
    /// The questions are numbered from 0 without gap; each answer carries its number.
    pub(super) fn new(questions: I, most: usize) -> Ahead<I, T> {
        Ahead {
            questions,
            most,
            under_way: FuturesUnordered::new(),
            answers: BTreeMap::new(),
            taken: 0,
        }
    }

    /// The answer to the next question, `None` after the last.
    pub(super) async fn next(&mut self) -> Option<T> {
        poll_fn(|context| {
            let room = self
                .most
                .saturating_sub(self.under_way.len() + self.answers.len());
            self.under_way.extend(self.questions.by_ref().take(room));
            // Begins the new ones, too.
            while let Poll::Ready(Some((number, answer))) = self.under_way.poll_next_unpin(context) {
                self.answers.insert(number, answer);
            }
            match self.answers.remove(&self.taken) {
                Some(answer) => {
                    self.taken += 1;
                    Poll::Ready(Some(answer))
                }
                None if self.under_way.is_empty() => Poll::Ready(None),
                None => Poll::Pending,
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    /// Question 0 is answered last of the first three.
    #[tokio::test]
    async fn answers_come_in_order_and_the_next_question_is_begun_before_one_is_given() {
        let (begun, polls) = (RefCell::new(Vec::new()), Cell::new(0));
        let questions = (0..5).map(|number| {
            let (begun, polls) = (&begun, &polls);
            async move {
                begun.borrow_mut().push(number);
                if number == 0 {
                    while polls.get() < 3 {
                        polls.set(polls.get() + 1);
                        tokio::task::yield_now().await;
                    }
                }
                (number, number * 10)
            }
        });
        let mut ahead = Ahead::new(questions, 3);
        assert!(begun.borrow().is_empty());
        assert_eq!(ahead.next().await, Some(0));
        assert_eq!(*begun.borrow(), [0, 1, 2]);
        assert_eq!(ahead.next().await, Some(10));
        assert_eq!(*begun.borrow(), [0, 1, 2, 3], "an answer was here already");
        assert_eq!(ahead.next().await, Some(20));
        assert_eq!(*begun.borrow(), [0, 1, 2, 3, 4]);
        assert_eq!(ahead.next().await, Some(30));
        assert_eq!(ahead.next().await, Some(40));
        assert_eq!(ahead.next().await, None);
    }
}
