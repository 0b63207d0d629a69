//! A page: a tree of objects, in which an object may be requested once the response that names it
//! is complete; and the walk through it.

use std::collections::{HashSet, VecDeque};
use std::ops::Range;

/// Nodes in breadth-first order: node 0 is the root, the children of a node lie together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    nodes: Vec<Node>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    object: u32,
    children: Range<u32>,
}

impl Page {
    /// The page of a root object. `children_of` names what an object refers to; what the page
    /// has already is not requested again, as a browser's cache would have it.
    pub fn grow<C: Iterator<Item = u32>>(root: u32, children_of: impl Fn(u32) -> C) -> Self {
        let mut seen = HashSet::from([root]);
        let leaf = |object| Node {
            object,
            children: 0..0,
        };
        let mut nodes = vec![leaf(root)];
        let mut at = 0;
        while at < nodes.len() {
            let first = nodes.len() as u32;
            let children = children_of(nodes[at].object);
            nodes.extend(children.filter(|&child| seen.insert(child)).map(leaf));
            nodes[at].children = first..nodes.len() as u32;
            at += 1;
        }
        Self { nodes }
    }

    /// Objects of the page.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The object of a node.
    pub fn object(&self, node: u32) -> u32 {
        self.nodes[node as usize].object
    }
}

/// Where a client is in a page.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    ready: VecDeque<u32>,
    unanswered: usize,
}

impl Walk {
    /// Begins a page; the last one must be finished.
    pub fn begin(&mut self, page: &Page) {
        self.ready.push_back(0);
        self.unanswered = page.len();
    }

    /// The next node that may be requested now, if any.
    pub fn next(&mut self) -> Option<u32> {
        self.ready.pop_front()
    }

    /// The response for a node is complete.
    pub fn answered(&mut self, page: &Page, node: u32) {
        self.unanswered -= 1;
        self.ready
            .extend(page.nodes[node as usize].children.clone());
    }

    /// Whether the whole page is there.
    pub fn finished(&self) -> bool {
        self.unanswered == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Page {
        let children: [&[u32]; 6] = [&[], &[2, 3], &[4, 3], &[5], &[], &[]];
        Page::grow(1, |object| children[object as usize].iter().copied())
    }

    #[test]
    fn an_object_is_requested_once_and_only_after_the_response_that_names_it() {
        let page = page();
        let mut walk = Walk::default();
        walk.begin(&page);
        let mut order = Vec::new();
        while !walk.finished() {
            let mut burst = Vec::new();
            while let Some(node) = walk.next() {
                burst.push(node);
            }
            order.push(burst.iter().map(|&n| page.object(n)).collect::<Vec<_>>());
            burst.iter().for_each(|&node| walk.answered(&page, node));
        }
        assert_eq!(order, [vec![1], vec![2, 3], vec![4, 5]]);
    }

    #[test]
    fn a_page_is_finished_when_the_last_response_is_there() {
        let page = page();
        let mut walk = Walk::default();
        walk.begin(&page);
        for answered in 0..page.len() {
            assert!(!walk.finished(), "after {answered} of {}", page.len());
            let node = walk.next().expect("something to request");
            walk.answered(&page, node);
        }
        assert!(walk.finished() && walk.next().is_none());
    }
}
