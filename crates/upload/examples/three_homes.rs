//! A file of 40 chunks through two neighbours, one of which hears every other frame: `cargo run -p anabranch-upload --example three_homes`.

use std::time::Duration;

use units::Timestamp;
use upload::{
    Arrival, BitRates, Destination, Lending, Neighbour, PeerKey, RangeSet, Settings, Source, Strategy,
    Transmit,
};
use wire::upload::Transfer;

const TRANSFER: Transfer = Transfer(1);
const CHUNKS: u32 = 40;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut now, settings) = (Timestamp::ZERO, Settings::default());
    let rates = BitRates::new(vec![Duration::from_millis(3)]).ok_or("no bit rate")?;
    let mut source = Source::new(now, settings, TRANSFER, CHUNKS, RangeSet::default(), rates, 0);
    let mut destination = Destination::new(now, settings, TRANSFER, CHUNKS, RangeSet::default());
    let mut homes = Vec::new();
    for seed in 0..2 {
        let (transfer, strategy) = (TRANSFER, Strategy::Scheduled);
        let lending =
            Lending { transfer, strategy, chunks: CHUNKS, chunk_bytes: 1_416, capacity: 64, window: 4, seed };
        let mut neighbour = Neighbour::new(lending);
        let key = PeerKey([seed as u8; 32]);
        let member = destination.join(now, key).ok_or("no room for a neighbour")?;
        neighbour.set_member(member);
        homes.push((member, neighbour));
    }
    // Everything but the air is at once here.
    while !destination.is_done() {
        now += Duration::from_millis(3);
        if let Some(frame) = source.poll_broadcast(now) {
            for (at, (_, neighbour)) in homes.iter_mut().enumerate() {
                if at == 0 || frame.air.0 % 2 == 0 {
                    neighbour.handle_frame(now, &frame, format!("chunk {}", frame.chunk.0));
                }
            }
        }
        for (member, neighbour) in &mut homes {
            while let Some(transmit) = neighbour.poll_transmit(now) {
                match transmit {
                    Transmit::Report(report) => destination.handle_report(now, *member, &report),
                    // Here a real destination opens the chunk and writes it to disk.
                    Transmit::Carry(chunk, _sealed) => {
                        destination.handle_stored(now, Arrival::By(*member), chunk);
                    }
                }
            }
        }
        destination.handle_timeout(now);
        while let Some((member, grant)) = destination.poll_grant(now) {
            if let Some((_, neighbour)) = homes.iter_mut().find(|(known, _)| *known == member) {
                neighbour.handle_grant(&grant);
            }
        }
        while let Some(feedback) = destination.poll_feedback(now) {
            source.handle_feedback(now, &feedback);
        }
    }
    let by: Vec<u32> = homes.iter().map(|(member, _)| destination.member_report(*member).brought).collect();
    println!(
        "{CHUNKS} chunks after {now:?} and {} frames, {by:?} through the two neighbours",
        source.frames()
    );
    Ok(())
}
