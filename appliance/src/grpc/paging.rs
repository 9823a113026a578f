//! Pages of a list (AIP-158). The token is the method and the key of the last element, so that elements may come and go between two
//! pages, and a token of another list is refused.

use tonic::Status;

use super::answer::RESPONSE_MAX;
use super::errors::invalid;

/// Page that a request asks for.
pub struct Page<'a> {
    /// Method whose list it is of.
    method: &'static str,
    size: usize,
    after: Option<&'a str>,
}

/// [`Page::new`] of a request: its method, the default of its page size, and the greatest one.
macro_rules! page {
    ($request:expr, $method:literal, $sizes:expr) => {
        $crate::grpc::paging::Page::new($method, $request.page_size, &$request.page_token, $sizes)
    };
}
pub(super) use page;

/// Bytes of elements in one answer: beside them it has other fields, and each of them a few bytes more.
const BYTES: usize = RESPONSE_MAX / 8 * 7;

/// How many elements of these sizes go into one answer.
pub fn fitting(sizes: impl Iterator<Item = usize>) -> usize {
    let all = sizes.scan(0, |sum, size| {
        *sum += size + 8;
        Some(*sum)
    });
    all.take_while(|sum| *sum <= BYTES).count()
}

fn foreign() -> Status {
    invalid(
        "page_token",
        "not a token of this method: pass the next_page_token of the page before",
    )
}

impl<'a> Page<'a> {
    /// Reads `page_size` and `page_token` of a request of this method.
    pub fn new(
        method: &'static str,
        size: i32,
        token: &'a str,
        [default, most]: [usize; 2],
    ) -> Result<Page<'a>, Status> {
        let size = match usize::try_from(size) {
            Ok(0) => default,
            Ok(n) => n.min(most),
            Err(_) => return Err(invalid("page_size", format!("{size} is negative"))),
        };
        let after = match token {
            "" => None,
            _ => {
                let of_method = token.split_once(':').filter(|(of, _)| *of == method);
                Some(of_method.ok_or_else(foreign)?.1)
            }
        };
        Ok(Page { method, size, after })
    }

    /// Greatest number of elements.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Key of the last element of the page before, if keys are numbers; 0: there is no page before.
    pub fn after_number(&self) -> Result<u64, Status> {
        self.after.map_or(Ok(0), |key| key.parse()).map_err(|_| foreign())
    }

    /// Key of the last element of the page before, if keys are those that this reads; `None`: there is no page before.
    pub fn after<K>(&self, read: impl FnOnce(&str) -> Option<K>) -> Result<Option<K>, Status> {
        let key = self.after.map(|key| read(key).ok_or_else(foreign));
        key.transpose()
    }

    /// Token of the page after this element.
    pub fn token(&self, key: impl std::fmt::Display) -> String {
        format!("{}:{key}", self.method)
    }

    /// As many elements of a cut page as go into an answer, with the token of the next page; `size` gives the bytes of one.
    pub fn fit<T>(
        &self,
        (mut items, next): (Vec<T>, String),
        key: impl Fn(&T) -> String,
        size: impl Fn(&T) -> usize,
    ) -> (Vec<T>, String) {
        let fit = fitting(items.iter().map(size)).max(1);
        if fit >= items.len() {
            return (items, next);
        }
        items.truncate(fit);
        let next = items.last().map_or(next, |last| self.token(key(last)));
        (items, next)
    }

    /// Cuts the page out of all elements, ordered by key; returns it with the token of the next page.
    pub fn cut<T>(&self, all: Vec<T>, key: impl Fn(&T) -> String) -> (Vec<T>, String) {
        let mut keyed: Vec<(String, T)> = all.into_iter().map(|item| (key(&item), item)).collect();
        keyed.sort_by(|(a, _), (b, _)| a.cmp(b));
        if let Some(after) = self.after {
            let first = keyed.partition_point(|(k, _)| k.as_str() <= after);
            keyed.drain(..first);
        }
        let mut next = String::new();
        if keyed.len() > self.size {
            keyed.truncate(self.size);
            if let Some((last, _)) = keyed.last() {
                next = self.token(last);
            }
        }
        (keyed.into_iter().map(|(_, item)| item).collect(), next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_cover_everything_once() {
        let all = || vec!["c", "a", "e", "b", "d"];
        let (mut token, mut seen) = (String::new(), Vec::new());
        loop {
            let (items, next) = Page::new("ListLetters", 2, &token, [10, 10])
                .expect("page")
                .cut(all(), |s| (*s).to_owned());
            assert!(items.len() <= 2);
            seen.extend(items);
            if next.is_empty() {
                break;
            }
            token = next;
        }
        assert_eq!(seen, ["a", "b", "c", "d", "e"]);
    }

    #[test]
    fn an_element_that_vanishes_between_pages_hides_no_other() {
        let (_, token) = Page::new("ListLetters", 2, "", [10, 10])
            .expect("page")
            .cut(vec!["a", "b", "c"], |s| (*s).to_owned());
        let (rest, _) = Page::new("ListLetters", 2, &token, [10, 10])
            .expect("page")
            .cut(vec!["a", "c"], |s| (*s).to_owned());
        assert_eq!(rest, ["c"]);
    }

    #[test]
    fn an_answer_has_as_many_as_go_into_it_and_at_least_one() {
        let page = |token| Page::new("ListLetters", 0, token, [10, 10]).expect("page");
        let fit = |token, size| {
            let first = page(token);
            let cut = first.cut(vec!["a", "b", "c"], |s| (*s).to_owned());
            first.fit(cut, |s| (*s).to_owned(), |_| size)
        };
        assert_eq!(fit("", BYTES / 3 - 8), (vec!["a", "b", "c"], String::new()));
        let (two, next) = fit("", BYTES / 2 - 8);
        assert_eq!(two, ["a", "b"]);
        assert_eq!(fit(&next, BYTES / 2 - 8), (vec!["c"], String::new()));
        assert_eq!(fit("", BYTES).0, ["a"]);
    }

    #[test]
    fn wrong_pages_are_refused() {
        assert!(Page::new("ListLetters", -1, "", [10, 10]).is_err());
        assert!(Page::new("ListLetters", 0, "garbage", [10, 10]).is_err());
        // A token of another list, whose keys may look alike.
        let (_, token) = Page::new("ListWords", 1, "", [10, 10])
            .expect("page")
            .cut(vec!["a", "b"], |s| (*s).to_owned());
        assert!(Page::new("ListWords", 1, &token, [10, 10]).is_ok());
        assert!(Page::new("ListLetters", 1, &token, [10, 10]).is_err());
    }
}
