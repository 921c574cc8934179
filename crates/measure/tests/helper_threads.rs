//! Processor time of a whole process: in a file of its own, with one test, so that no other test
//! computes in this process meanwhile.
#![cfg(unix)]

use kernelwise_measure::Warning;
use kernelwise_measure::selfcheck::helper_threads;

fn spin(steps: u64) -> u64 {
    (0..steps).fold(1, |x: u64, i| {
        std::hint::black_box(x.wrapping_mul(31).wrapping_add(i))
    })
}

#[test]
fn only_a_second_thread_gives_a_warning() {
    let (alone, warning) = helper_threads(|| spin(20_000_000));
    assert_eq!(warning, None);

    let (helped, warning) = helper_threads(|| {
        let helper = std::thread::spawn(|| spin(20_000_000));
        spin(20_000_000) ^ helper.join().unwrap() ^ alone
    });
    assert_eq!(helped, alone, "what the body returns is handed on");
    let Some(
        warning @ Warning::HelperThreads {
            thread_ns,
            process_ns,
        },
    ) = warning
    else {
        panic!("no warning");
    };
    // Both did the same work, so the process computed for about twice as long as the thread.
    assert!(2 * process_ns > 3 * thread_ns, "{warning}");
    assert!(warning.advice().contains("wall time"));
}
