//! A peer that has the keys and says whatever it likes: no panic, no endless answers, and bounded memory.

use super::*;
use crate::address::Carrier;
use crate::streams::StreamLimits;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::net::SocketAddr;
use wire::datagram::{DataHeader, Datagram, TAG_LEN};
use wire::frame::{Ack, Arrived, Data, Frame, GaveUp, Part, PathStatus as PathStatusFrame, Rekey, Repair};
use wire::inner::Ecn;
use wire::stream::{StreamData, StreamFrame, StreamId};
use zeroize::Zeroizing;

const PEER: PublicKey = PublicKey([7; 32]);
/// Memory that one session may use for packets to come: a slot each, and the contents of partial packets and decoders.
const MOST_SLOTS: u32 = 140_000;

fn raw(send: u8, receive: u8) -> RawKeys {
    RawKeys { send: Zeroizing::new([send; 32]), receive: Zeroizing::new([receive; 32]) }
}

fn address(port: u16) -> Address {
    let remote = SocketAddr::from(([192, 0, 2, 1], port));
    Address { network: NetworkId(1), carrier: Carrier::Udp, remote }
}

/// A victim and the keys of its peer.
struct Scene {
    now: Timestamp,
    victim: Session,
    role: Role,
    keys: SessionKeys,
    numbers: [u64; 8],
    random: ChaCha8Rng,
    own: PrivateKey,
}

impl Scene {
    fn new(role: Role, seed: u64) -> Self {
        let now = Timestamp::from_millis(1_000);
        let random = ChaCha20Rng::seed_from_u64(seed);
        let config = SessionConfig::default();
        let mut victim =
            Session::new(now, role, PEER, 9, Cipher::ChaCha20Poly1305, &raw(2, 1), config, random).unwrap();
        victim.carry_streams(StreamLimits::default());
        if role == Role::Initiator {
            for port in 0..3 {
                victim.add_path(now, address(port), 1_472);
            }
        }
        Self {
            now,
            victim,
            role,
            keys: SessionKeys::new(now, Cipher::ChaCha20Poly1305, &raw(1, 2)).unwrap(),
            numbers: [0; 8],
            random: ChaCha8Rng::seed_from_u64(seed),
            own: PrivateKey::new([1; 32]),
        }
    }

    /// Seals `frames` as the peer would and gives them to the victim.
    fn say(&mut self, frames: &[u8]) {
        let path = self.random.random_range(0..if self.role == Role::Initiator { 3 } else { 8u8 });
        let number = &mut self.numbers[usize::from(path)];
        *number += if self.random.random_bool(0.9) { 1 } else { self.random.random_range(1..20_000) };
        let truncated_number = (*number & 0xff_ffff) as u32;
        let header =
            DataHeader { receiver_index: 1, epoch: 0, path: PathId(path), truncated_number, number_len: 3 };
        let mut datagram = Vec::new();
        header.put(&mut datagram);
        let plain_from = datagram.len();
        datagram.extend_from_slice(frames);
        self.keys.seal(PathId(path), *number, 0, plain_from, &mut datagram);
        assert!(datagram.len() > plain_from + TAG_LEN);
        let Ok(Datagram::Data(header)) = Datagram::parse(&datagram) else { panic!("not a data packet") };
        let from = address(self.random.random_range(0..5));
        let ecn = if self.random.random_bool(0.1) { Ecn::Ce } else { Ecn::Ect0 };
        let _ = self.victim.handle_data(self.now, from, ecn, &header, &mut datagram, &self.own);
        self.drain();
    }

    fn drain(&mut self) {
        let mut buffer = Vec::new();
        let mut count = 0;
        while self.victim.poll_transmit(self.now, &mut buffer, 8).is_some() {
            count += 1;
            assert!(count < 2_000, "answers without end");
        }
        while self.victim.poll_packet().is_some() || self.victim.poll_event().is_some() {}
        assert!(self.victim.load.slots <= MOST_SLOTS, "{:?}", self.victim.load);
    }

    fn pass_time(&mut self) {
        if self.random.random_bool(0.3) {
            self.now += Duration::from_micros(self.random.random_range(0..50_000));
        }
        for _ in 0..50 {
            match self.victim.poll_timeout(self.now) {
                Some(at) if at <= self.now => self.victim.handle_timeout(self.now, &self.own),
                _ => return,
            }
            self.drain();
        }
        panic!("time stands still");
    }

    /// A number that is near nothing, near the edge, or near what was used.
    fn number(&mut self) -> u64 {
        match self.random.random_range(0..6) {
            0 => self.random.random::<u64>() >> 2,
            1 => u64::from(u32::MAX) + self.random.random_range(0..4) - 2,
            2 => 32_768 + self.random.random_range(0..4) - 2,
            _ => self.random.random_range(0..200),
        }
    }

    fn frame(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; self.random.random_range(0..600)];
        self.random.fill(&mut bytes[..]);
        let flow = if self.random.random_bool(0.7) {
            self.random.random_range(0..4)
        } else {
            self.number() as u16 & 0x3fff
        };
        let (one, other) = (self.number(), self.number());
        let mut out = Vec::new();
        let frame = match self.random.random_range(0..15) {
            0 => Frame::Ping,
            1 => self.acknowledge(),
            2 => Frame::Challenge([one as u8; 8]),
            3 => Frame::Response([one as u8; 8]),
            4 => Frame::PathStatus(PathStatusFrame {
                path: PathId(one as u8 % 8),
                sequence: other,
                status: one as u8 % 3,
                priority: other as u8,
                limit: one >> 8,
            }),
            5 if self.random.random_bool(0.1) => Frame::PathAbandon(PathId(one as u8 % 8)),
            6 => Frame::GaveUp(GaveUp { flow, first: one as u32, count: (other as u32).clamp(1, 65_535) }),
            7 => Frame::Hold { sequence: one, micros: other },
            8 => Frame::Rekey(Rekey { step: one as u8 % 2, epoch: other as u8 % 3, noise: &bytes }),
            9 => Frame::Message(&bytes),
            10 => Frame::Repair(Repair {
                flow,
                first: one as u16,
                count: (other % 64) as u8 + 1,
                length_xor: other as u16,
                payload_xor: &bytes,
            }),
            11 => return bytes,
            12 => {
                let Frame::Ack(Ack { ranges, .. }) = self.acknowledge() else { return bytes };
                Frame::Arrived(Arrived { path: PathId(one as u8 % 8), ranges })
            }
            _ => {
                let part = Part { offset: other as u16 & 0x7fff, more: self.random.random_bool(0.7) };
                let part = self.random.random_bool(0.4).then_some(part);
                let ordered = self.random.random_bool(0.7);
                let long = self.random.random_bool(0.7);
                Frame::Data(Data { flow, sequence: one as u32, long, ordered, part, payload: &bytes })
            }
        };
        frame.put(&mut out);
        out
    }

    fn stream_frame(&mut self) -> Vec<u8> {
        let bytes = vec![3; self.random.random_range(0..400)];
        let stream = StreamId(self.random.random_range(0..9));
        let number = match self.random.random_range(0..3) {
            0 => self.number(),
            _ => self.random.random_range(0..60_000),
        };
        let frame = match self.random.random_range(0..40) {
            0 => StreamFrame::Reset { stream, code: number, final_size: number },
            1 => StreamFrame::Stop { stream, code: number },
            2 => StreamFrame::StreamLimit { stream, offset: number },
            3 => StreamFrame::SessionLimit(number),
            4 => StreamFrame::StreamCount(number),
            5 => StreamFrame::Datagram(&bytes),
            6 => return self.frame(),
            _ => {
                let fin = self.random.random_bool(0.02);
                StreamFrame::Data(StreamData { stream, offset: number.min(1 << 61), fin, bytes: &bytes })
            }
        };
        let mut out = Vec::new();
        frame.put(&mut out);
        out
    }

    fn acknowledge(&mut self) -> Frame<'static> {
        let largest = self.number();
        let mut ranges = arrayvec::ArrayVec::new();
        let mut end = largest;
        for _ in 0..self.random.random_range(1..8) {
            let start = end.saturating_sub(self.random.random_range(0..10));
            ranges.push(start..=end);
            let Some(next) = start.checked_sub(2 + self.random.random_range(0..10)) else { break };
            end = next;
        }
        Frame::Ack(Ack {
            ranges,
            delay_micros: self.number(),
            receive_time: self.number() as u32,
            received_bytes: self.number() as u32,
            reordering_micros: self.number(),
            ce_count: self.number(),
        })
    }
}

#[test]
fn nonsense_from_an_authentic_peer_is_survived() {
    for seed in 0..20 {
        let role = if seed % 2 == 0 { Role::Initiator } else { Role::Responder };
        let mut scene = Scene::new(role, seed);
        for at in 0..600u64 {
            if at % 7 == 0 {
                let packet = inner_packet(at);
                let headers = wire::inner::parse(&packet).unwrap();
                scene.victim.handle_packet(scene.now, &headers, packet);
            }
            let count = scene.random.random_range(1..4);
            let frames: Vec<u8> = (0..count).flat_map(|_| scene.frame()).take(1_400).collect();
            if frames.is_empty() {
                continue;
            }
            scene.say(&frames);
            scene.pass_time();
        }
    }
}

#[test]
fn nonsense_about_streams_is_survived() {
    for seed in 0..20 {
        let role = if seed % 2 == 0 { Role::Initiator } else { Role::Responder };
        let mut scene = Scene::new(role, seed);
        let mut buffer = [0; 5_000];
        for at in 0..600u64 {
            let number = scene.random.random_range(0..9);
            let id = StreamId(number);
            if let Some(streams) = scene.victim.streams_mut() {
                // Whatever the peer has made of them.
                let _ = match at % 9 {
                    0 => streams.open().map(drop),
                    1 => streams.finish(id),
                    2 => streams.read(id, &mut buffer).map(drop),
                    3 => {
                        streams.reset(id, at);
                        Ok(())
                    }
                    4 => {
                        streams.stop(id, at);
                        Ok(())
                    }
                    5 => {
                        streams.moved(false);
                        Ok(())
                    }
                    _ => streams.write(id, &buffer).map(drop),
                };
            }
            let frames: Vec<u8> = (0..3).flat_map(|_| scene.stream_frame()).take(1_400).collect();
            if !frames.is_empty() {
                scene.say(&frames);
            }
            scene.pass_time();
        }
        assert!(scene.victim.stream_count() <= 2 * 256);
    }
}

#[test]
fn far_sequence_numbers_do_not_fill_the_memory() {
    let mut scene = Scene::new(Role::Responder, 1);
    for flow in 0..2_000u16 {
        for sequence in [0, 32_000] {
            let data = Data { flow, sequence, long: true, ordered: true, part: None, payload: b"x" };
            let mut frames = Vec::new();
            data.put(true, &mut frames);
            scene.say(&frames);
        }
    }
    assert!(scene.victim.load.slots > 60_000, "the attack is none: {:?}", scene.victim.load);
    scene.now += MAX_HOLD;
    scene.victim.handle_timeout(scene.now, &scene.own);
    scene.drain();
    scene.now += TICK;
    scene.victim.handle_timeout(scene.now, &scene.own);
    assert_eq!(scene.victim.load.slots, 0, "what was held is let go");
}

#[test]
fn incomplete_packets_are_few() {
    let mut scene = Scene::new(Role::Responder, 2);
    for flow in 0..1_000u16 {
        for sequence in 0..4 {
            let part = Some(Part { offset: 0, more: true });
            let data = Data { flow, sequence, long: true, ordered: false, part, payload: &[1; 1_000] };
            let mut frames = Vec::new();
            data.put(true, &mut frames);
            let repair = Repair { flow, first: 0, count: 3, length_xor: 9, payload_xor: &[1; 100] };
            repair.put(&mut frames);
            scene.say(&frames);
        }
    }
    let load = scene.victim.load;
    assert!((200..=256).contains(&load.partial) && (32..=64).contains(&load.decoders), "{load:?}");
}

/// A repeat of the peer's part of a rekey, as after a spurious loss, must not change the keys that were answered.
#[test]
fn a_repeated_rekey_is_answered_once() {
    let device = PrivateKey::new([1; 32]);
    let gateway = PrivateKey::new([2; 32]);
    let public = |key: &PrivateKey| crate::handshake::public_key(key).unwrap();
    let mut random = ChaCha20Rng::seed_from_u64(5);
    let (mut handshake, noise) =
        Handshake::initiate(&device, &public(&gateway), REKEY_PROLOGUE, &[1], &mut random).unwrap();
    let mut scene = Scene::new(Role::Responder, 3);
    scene.own = gateway;
    scene.victim.peer = public(&device);
    let mut answers = Vec::new();
    let rekey = Rekey { step: 0, epoch: 1, noise: &noise };
    for _ in 0..3 {
        scene.victim.handle_rekey(scene.now, &rekey, &scene.own);
        answers.extend(std::iter::from_fn(|| scene.victim.control.pop()));
    }
    assert_eq!(answers.len(), 1, "{answers:?}");
    let Some(Control::Rekey { noise, .. }) = answers.first() else { panic!("no answer: {answers:?}") };
    assert!(handshake.finish(noise).is_ok());
}

fn inner_packet(number: u64) -> Vec<u8> {
    let mut packet = vec![0; 200];
    packet[0] = 0x45;
    packet[3] = 200;
    packet[9] = if number.is_multiple_of(2) { 6 } else { 17 };
    packet[32] = 0x50;
    packet
}
