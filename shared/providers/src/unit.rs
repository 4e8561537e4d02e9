//! How providers write a time.

use domain::time::Timestamp;
use serde::Deserialize;

/// A way to write a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) enum Unit {
    /// Seconds since 1970, with or without a fraction.
    #[serde(rename = "s")]
    Seconds,
    /// Milliseconds since 1970.
    #[serde(rename = "ms")]
    Millis,
    /// RFC 3339.
    #[serde(rename = "rfc3339")]
    Rfc3339,
    /// As RFC 3339, in UTC without saying so.
    #[serde(rename = "utc")]
    Utc,
}

impl Unit {
    /// The time that `text` writes. Numbers are digits only: no sign, no space.
    pub(crate) fn read(self, text: &str) -> Option<Timestamp> {
        match self {
            Self::Seconds => match text.split_once('.') {
                Some((whole, fraction)) => {
                    let millis = format!("{:0<3}", digits(fraction)?.get(..3).unwrap_or(fraction));
                    let millis: i64 = millis.parse().ok()?;
                    let whole = digits(whole)?.parse::<i64>().ok()?;
                    Some(Timestamp::from_millis(whole.checked_mul(1000)?.checked_add(millis)?))
                }
                None => digits(text)?.parse().ok().map(Timestamp::from_secs),
            },
            Self::Millis => digits(text)?.parse().ok().map(Timestamp::from_millis),
            Self::Rfc3339 => {
                let time: jiff::Timestamp = text.parse().ok()?;
                Some(Timestamp::from_millis(time.as_millisecond()))
            }
            Self::Utc => {
                let time: jiff::civil::DateTime = text.trim_end_matches('Z').parse().ok()?;
                let time = jiff::tz::Offset::UTC.to_timestamp(time).ok()?;
                Some(Timestamp::from_millis(time.as_millisecond()))
            }
        }
    }

    /// As [`Unit::read`], for a time that is signed: without a fraction, whose point could be taken
    /// for the separator after it.
    pub(crate) fn read_signed(self, text: &str) -> Option<Timestamp> {
        match self {
            Self::Seconds | Self::Millis => digits(text).and_then(|text| self.read(text)),
            Self::Rfc3339 | Self::Utc => self.read(text),
        }
    }

    /// Writes a time, cut to the unit.
    pub(crate) fn write(self, time: Timestamp) -> String {
        match self {
            Self::Seconds => time.millis().div_euclid(1000).to_string(),
            Self::Millis => time.to_string(),
            Self::Rfc3339 => rfc3339(time),
            Self::Utc => rfc3339(time).trim_end_matches('Z').to_owned(),
        }
    }
}

/// A time in RFC 3339, to the second. The epoch for a time that no calendar reaches.
pub(crate) fn rfc3339(time: Timestamp) -> String {
    jiff::Timestamp::from_second(time.millis().div_euclid(1000)).unwrap_or_default().to_string()
}

fn digits(text: &str) -> Option<&str> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(unit: Unit, text: &str) -> Option<i64> {
        unit.read(text).map(Timestamp::millis)
    }

    #[test]
    fn times_are_read_to_the_millisecond() {
        assert_eq!(read(Unit::Seconds, "1700000000"), Some(1_700_000_000_000));
        assert_eq!(read(Unit::Seconds, "1700000000.000256"), Some(1_700_000_000_000));
        assert_eq!(read(Unit::Seconds, "1700000000.5"), Some(1_700_000_000_500));
        assert_eq!(read(Unit::Millis, "1700000000123"), Some(1_700_000_000_123));
        assert_eq!(read(Unit::Rfc3339, "2023-11-14T22:13:20.5Z"), Some(1_700_000_000_500));
        for text in ["2023-11-14T23:13:20+01:00", "2023-11-14T23:13:20+0100"] {
            assert_eq!(read(Unit::Rfc3339, text), Some(1_700_000_000_000), "{text}");
        }
        assert_eq!(read(Unit::Utc, "2023-11-14T22:13:20.5"), Some(1_700_000_000_500));
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in
            ["", " 1", "+1", "-1", "1e3", "0x1", "1.", ".5", "1.x", "٣", "99999999999999999999"]
        {
            assert_eq!(read(Unit::Seconds, text), None, "{text}");
        }
        assert_eq!(read(Unit::Rfc3339, "2023-11-14"), None);
        assert_eq!(Unit::Seconds.read_signed("1.5"), None);
    }

    #[test]
    fn what_is_written_can_be_read() {
        let time = Timestamp::from_secs(1_700_000_000);
        for unit in [Unit::Seconds, Unit::Millis, Unit::Rfc3339, Unit::Utc] {
            assert_eq!(unit.read(&unit.write(time)), Some(time));
        }
        assert_eq!(rfc3339(Timestamp::from_millis(i64::MAX)), "1970-01-01T00:00:00Z");
    }
}
