//! Signing as a provider would, for samples and tests.

use std::borrow::Cow;

use domain::{
    delivery::{Delivery, Headers},
    time::Timestamp,
};
use ring::digest;
use serde_json::{Map, Value};

use super::{
    BodyDigest, Rejection, Scheme, SignaturePlace, Time, TimePlace, jwt, template::Values,
};
use crate::{
    CannotSign,
    endpoint::Endpoint,
    form,
    secret::Material,
    select::{Lookups, Place, Reading, Selector, is_form},
};

impl Scheme {
    /// Signs `delivery`: in its headers, in place of any signature that is there, or in its body or
    /// query, in place of [`PLACEHOLDER`].
    pub(crate) fn sign(
        &self,
        key: &Material,
        mut delivery: Delivery,
        lookups: &Lookups,
        endpoint: &Endpoint,
        now: Timestamp,
    ) -> Result<Delivery, CannotSign> {
        let time = self.time.as_ref().map(|time| time.unit.write(now));
        if let (Some(Time { place: TimePlace::Header(names), .. }), Some(time)) =
            (&self.time, &time)
        {
            let name = names.first().map(String::as_str).unwrap_or_default();
            delivery.headers = with_header(&delivery.headers, name, time);
        }
        let signatures = {
            let body = lookups.open(&delivery);
            let whole = lookups.read(&delivery, &[], now, &body);
            let readings = match &self.each {
                None => vec![whole],
                Some(each) => whole.items(lookups, each).ok().flatten().unwrap_or_default(),
            };
            let sign = |reading: &Reading<'_>| {
                self.signature(key, &delivery, endpoint, reading, time.as_deref())
            };
            readings.iter().map(sign).collect::<Result<Vec<_>, _>>()?
        };
        let first = signatures.first().map(String::as_str).unwrap_or_default();
        match &self.place {
            SignaturePlace::Headers(names) => {
                let name = names.first().map(String::as_str).unwrap_or_default();
                delivery.headers = with_header(&delivery.headers, name, first);
            }
            SignaturePlace::Numbered(prefix) => {
                delivery.headers = with_header(&delivery.headers, &format!("{prefix}1"), first);
            }
            SignaturePlace::Elsewhere(Selector { place: Place::Query(name), .. }) => {
                delivery.query = format!("{name}={}", form::escaped(first.as_bytes()));
            }
            SignaturePlace::Elsewhere(_) => {
                let form = is_form(&delivery.headers, &delivery.body);
                let mut body = String::from_utf8_lossy(&delivery.body).into_owned();
                for signature in &signatures {
                    let escaped = form.then(|| form::escaped(signature.as_bytes()));
                    let signature = escaped.as_deref().unwrap_or(signature);
                    body = body.replacen(PLACEHOLDER, signature, 1);
                }
                delivery.body = body.into_bytes();
            }
        }
        Ok(delivery)
    }

    /// One signature, as it is written.
    fn signature(
        &self,
        key: &Material,
        delivery: &Delivery,
        endpoint: &Endpoint,
        reading: &Reading<'_>,
        time: Option<&str>,
    ) -> Result<String, CannotSign> {
        let cannot = |rejection: Rejection| {
            if let Rejection::NoSignedPart { place } = rejection {
                return CannotSign::Missing { place };
            }
            CannotSign::Incomplete { reason: rejection.to_string() }
        };
        let written_time = |_| {
            Ok(match &self.time {
                Some(Time { place: TimePlace::Body(selector), .. }) => {
                    reading.text(selector).map(|text| Cow::Owned(text.into_owned()))
                }
                _ => time.map(|time| Cow::Owned(time.to_owned())),
            })
        };
        let mut values = self.values(endpoint, delivery, reading, written_time).map_err(cannot)?;
        if let Material::Text(text) = key {
            values.secret = Some(text);
        }
        let text = match self.jwt {
            Some(algorithm) => {
                let token = self.unsigned_token(algorithm, key, &values).map_err(cannot)?;
                let pieces = [Cow::Borrowed(token.as_bytes())];
                let signature = self.method.sign(key, &pieces).ok_or(CannotSign::PublicKey)?;
                format!("{token}.{}", self.encoding.encode(&signature))
            }
            None => {
                let template = self.templates.first().map(Vec::as_slice).unwrap_or_default();
                let pieces = values.fill(template).map_err(cannot)?;
                let signature = self.method.sign(key, &pieces).ok_or(CannotSign::PublicKey)?;
                self.encoding.encode(&signature)
            }
        };
        let member = match &self.time {
            Some(Time { place: TimePlace::Member(tag), .. }) => {
                time.map(|time| (tag.as_str(), time))
            }
            _ => None,
        };
        Ok(self.grammar.write(member, &text))
    }

    fn unsigned_token(
        &self,
        algorithm: &str,
        key: &Material,
        values: &Values<'_>,
    ) -> Result<String, Rejection> {
        let mut claims = Map::new();
        if let (Some(Time { place: TimePlace::Claim(name), .. }), Some(time)) =
            (&self.time, &values.time)
        {
            claims.insert(name.clone(), time.parse::<i64>().map_or(Value::Null, Value::from));
        }
        if let Some(BodyDigest::Claim(name)) = &self.body_digest {
            let digest = digest::digest(&digest::SHA256, &values.delivery.body);
            claims.insert(name.clone(), hex::encode(digest).into());
        }
        for (claim, template) in &self.claims {
            let text = values.fill(template)?.concat();
            claims.insert(claim.clone(), String::from_utf8_lossy(&text).into());
        }
        Ok(jwt::unsigned(algorithm, key.id(), claims))
    }
}

/// `headers` with this one in place of any of its name.
fn with_header(headers: &Headers, name: &str, value: &str) -> Headers {
    let kept = headers.iter().filter(|(known, _)| *known != name);
    kept.chain([(name, value)]).collect()
}

/// Where a sample's body has its signature.
const PLACEHOLDER: &str = "{{signature}}";
