//! Views against an independent model: whatever layout is asked for, an element is either refused or
//! exactly the one that plain index arithmetic finds, and writing changes nothing else.

use std::collections::HashMap;

use kernelwise_types::{Layout, Shape, TensorView, TensorViewMut};
use proptest::prelude::*;

/// Sizes (zeros included) with any strides and any start: most are refused, some are not.
fn layouts() -> impl Strategy<Value = (Vec<usize>, Vec<isize>, usize)> {
    (0usize..4).prop_flat_map(|rank| {
        (
            prop::collection::vec(0usize..5, rank),
            prop::collection::vec(-12isize..13, rank),
            0usize..40,
        )
    })
}

/// Every index of a shape.
fn indices(sizes: &[usize]) -> Vec<Vec<usize>> {
    sizes.iter().fold(vec![vec![]], |indices, &size| {
        indices
            .iter()
            .flat_map(|index| (0..size).map(move |i| [index.as_slice(), &[i]].concat()))
            .collect()
    })
}

fn position(index: &[usize], strides: &[isize], offset: usize) -> isize {
    let steps = index
        .iter()
        .zip(strides)
        .map(|(&i, &stride)| i as isize * stride);
    offset as isize + steps.sum::<isize>()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn reading_finds_the_element_or_refuses((sizes, strides, offset) in layouts()) {
        let data: Vec<u32> = (0..48).collect();
        let layout = Layout::strided(Shape::new(&sizes).unwrap(), &strides).unwrap();
        let positions: Vec<isize> =
            indices(&sizes).iter().map(|index| position(index, &strides, offset)).collect();
        let inside = positions.iter().all(|p| (0..48).contains(p));
        let view = TensorView::strided(&data, layout, offset);
        prop_assert_eq!(view.is_ok(), inside);
        if let Ok(view) = view {
            let read: Vec<u32> = view.iter::<u32>().unwrap().collect();
            let expected: Vec<u32> = positions.iter().map(|&p| p as u32).collect();
            prop_assert_eq!(&read, &expected);
            if let Ok(slice) = view.as_slice::<u32>() {
                prop_assert_eq!(slice, expected.as_slice());
            }
            for beyond in sizes.iter().enumerate().map(|(axis, &size)| {
                let mut index = vec![0; sizes.len()];
                index[axis] = size;
                index
            }) {
                prop_assert_eq!(view.get::<u32>(&beyond), None);
            }
        }
    }

    #[test]
    fn writing_touches_each_element_once_and_no_other((sizes, strides, offset) in layouts()) {
        let mut data = vec![0u32; 48];
        let layout = Layout::strided(Shape::new(&sizes).unwrap(), &strides).unwrap();
        let Ok(mut view) = TensorViewMut::strided(&mut data, layout, offset) else { return Ok(()) };
        let mut expected: HashMap<isize, u32> = HashMap::new();
        for (mark, index) in indices(&sizes).iter().enumerate() {
            let mark = mark as u32 + 1;
            prop_assert!(view.set(index, mark));
            let earlier = expected.insert(position(index, &strides, offset), mark);
            prop_assert_eq!(earlier, None, "two indices share an element");
        }
        for (position, value) in data.iter().enumerate() {
            prop_assert_eq!(*value, expected.get(&(position as isize)).copied().unwrap_or(0));
        }
    }
}
