//! Records ten seconds of a bond and prints their picture: `cargo run -p anabranch-trace --example draw > bond.svg`.

use trace::{Metrics, PathFigures, Sample, Writer, picture, read};

fn main() -> Result<(), trace::ReadError> {
    let mut writer = Writer::new(1 << 20);
    let mut record = writer.head("van", true, "example");
    for second in 0..10_u64 {
        let figures = PathFigures {
            health: "good".to_owned(),
            status: "active".to_owned(),
            sent_bytes: second * second * 100_000,
            ..PathFigures::default()
        };
        let metrics = Metrics { smoothed_rtt: Some(20.0 + second as f64), ..Metrics::default() };
        let sample = Sample { paths: vec![("wan0#1".to_owned(), metrics, figures)], ..Sample::default() };
        record.extend(writer.sample(second as f64 * 1_000.0, sample).unwrap_or_default());
    }
    print!("{}", picture(&read(&record)?));
    Ok(())
}
