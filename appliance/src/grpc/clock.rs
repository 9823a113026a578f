//! `vnic.v1.ClockService`.

use std::sync::Arc;
use std::time::Duration;

use tonic::{Request, Response};
use vnic_backend::{ClockAdjustment, ClockStatus};
use vnic_control::v1;

use super::answer::{Answer, answer};
use super::errors::invalid;
use crate::access::who;
use crate::control::{Control, NicClock, clock_offset};
use crate::stored::values;

/// The service.
pub struct TheClock(pub Arc<Control>);

/// Resource name of the only clock.
const NAME: &str = "clock";

fn message(status: &ClockStatus) -> v1::Clock {
    v1::Clock {
        name: NAME.to_owned(),
        time: Some(prost_types::Timestamp {
            seconds: i64::try_from(status.time.as_secs()).unwrap_or(i64::MAX),
            nanos: status.time.subsec_nanos().cast_signed(),
        }),
        system_time: Some(values::timestamp(status.system)),
        offset_ns: clock_offset(status),
        frequency_ppb: status.frequency,
    }
}

/// Time since 1970 of a message; `None`: it is before, or no time.
fn since_1970(time: prost_types::Timestamp) -> Option<Duration> {
    let (seconds, nanos) = (u64::try_from(time.seconds).ok()?, u32::try_from(time.nanos).ok()?);
    (nanos < 1_000_000_000).then(|| Duration::new(seconds, nanos))
}

#[tonic::async_trait]
impl v1::clock_service_server::ClockService for TheClock {
    async fn get_clock(&self, request: Request<v1::GetClockRequest>) -> Answer<v1::Clock> {
        let name = request.into_inner().name;
        if !name.is_empty() && name != NAME {
            return Err(invalid("name", format!("{name:?}: {NAME:?} is allowed")));
        }
        Ok(Response::new(message(&NicClock(&self.0).get())))
    }

    async fn set_clock(&self, request: Request<v1::SetClockRequest>) -> Answer<v1::Clock> {
        let by = who(&request);
        let wanted = request.into_inner().time;
        let time = wanted.map(|time| {
            since_1970(time).ok_or_else(|| invalid("time", "it is before 1970, or has no valid nanoseconds"))
        });
        let time = time.transpose()?;
        answer(&self.0, move |control| {
            Ok(message(&NicClock(control).set(&by, time)?))
        })
        .await
    }

    async fn adjust_clock(&self, request: Request<v1::AdjustClockRequest>) -> Answer<v1::Clock> {
        let by = who(&request);
        let request = request.into_inner();
        if request.offset_ns == 0 && request.frequency_ppb.is_none() {
            return Err(invalid("offset_ns", "neither this nor frequency_ppb is given"));
        }
        let change = ClockAdjustment {
            offset: request.offset_ns,
            frequency: request.frequency_ppb,
        };
        answer(&self.0, move |control| {
            Ok(message(&NicClock(control).adjust(&by, change)?))
        })
        .await
    }
}
