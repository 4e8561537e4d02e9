//! From a written place to where a value is looked up.

use super::{
    checks::{Refusal, header_names, refuse},
    file,
};
use crate::{
    select::{Condition, Each, Lookups, Part, Place, Selector, Test},
    verify::Scheme,
};

/// Reads places, and gathers what they look up in bodies.
pub(super) struct Places<'s> {
    pub(super) lookups: Lookups,
    /// Those that are known by now: none while they are read themselves.
    pub(super) schemes: &'s [Scheme],
    /// The list that is gone through.
    pub(super) each: Option<Each>,
}

impl Places<'_> {
    pub(super) fn selector(
        &mut self,
        key: &str,
        written: file::Selector,
    ) -> Result<Selector, Refusal> {
        let refused = |problem| Refusal { key: key.to_owned(), reason: String::from(problem) };
        let file::Selector { header, query, signed, pointer, form, digest } = written;
        let (place, shown) = match (header, query, signed, pointer, form) {
            (Some(name), None, None, None, None) => {
                header_names(key, std::slice::from_ref(&name))?;
                if self.schemes.iter().any(|scheme| scheme.is_signature(&name)) {
                    return refuse(key, "a signature is another one at each attempt");
                }
                let shown = format!("header {name}");
                (Place::Header(name), shown)
            }
            (None, Some(name), None, None, None) => {
                let shown = format!("query {name}");
                (Place::Query(name), shown)
            }
            (None, None, Some(name), None, None) => {
                let parts = self.schemes.iter().flat_map(|scheme| &scheme.parts);
                let Some(part) = parts.into_iter().find(|part| part.name == name) else {
                    return refuse(key, format!("no scheme signs a part \"{name}\""));
                };
                let shown = part.place.shown();
                (Place::Signed(name), shown)
            }
            (None, None, None, Some(pointer), None) => {
                let address = self.lookups.pointer(&pointer).map_err(refused)?;
                let around = self.each.as_ref().map(|each| each.items.lists.as_slice());
                if !around.unwrap_or_default().starts_with(&address.lists) {
                    return refuse(key, "a list that \"each\" does not go through");
                }
                (Place::Json(address), format!("body {pointer}"))
            }
            (None, None, None, pointer, Some(field)) => {
                let place = self.lookups.field(&field, pointer.as_deref()).map_err(refused)?;
                (place, format!("form field {field}{}", pointer.unwrap_or_default()))
            }
            (None, None, None, None, None) if digest => (Place::Body, String::from("the body")),
            _ => {
                return refuse(
                    key,
                    "a place is a header, a query parameter, a signed part, a pointer, a form \
                     field, or the digest of the body",
                );
            }
        };
        Ok(Selector { place, digest, shown })
    }

    pub(super) fn part(&mut self, key: &str, written: file::Part) -> Result<Part, Refusal> {
        let only = written.selector();
        let any = match written.any {
            None => vec![self.selector(key, only)?],
            Some(any) if any.is_empty() => return refuse(key, "\"any\" of nothing"),
            Some(any) => {
                let file::Selector { header, query, signed, pointer, form, digest } = &only;
                let texts = [header, query, signed, pointer, form];
                if texts.iter().any(|place| place.is_some()) || *digest {
                    return refuse(key, "\"any\" goes without a place beside it");
                }
                any.into_iter()
                    .map(|selector| self.selector(key, selector))
                    .collect::<Result<_, _>>()?
            }
        };
        Ok(Part { any, optional: written.optional })
    }

    pub(super) fn parts(
        &mut self,
        key: &str,
        written: Vec<file::Part>,
    ) -> Result<Vec<Part>, Refusal> {
        let parts = written.into_iter().enumerate();
        parts.map(|(at, part)| self.part(&format!("{key}[{at}]"), part)).collect()
    }

    pub(super) fn conditions(
        &mut self,
        key: &str,
        written: Vec<file::Condition>,
    ) -> Result<Vec<Condition>, Refusal> {
        let read = |condition: file::Condition| {
            let selector = self.selector(key, condition.selector())?;
            let test = match (condition.is, condition.present) {
                (Some(is), None) => Test::Is(is),
                (None, Some(present)) => Test::Present(present),
                _ => return refuse(key, "a condition says what \"is\" there, or \"present\""),
            };
            Ok(Condition { selector, test })
        };
        written.into_iter().map(read).collect()
    }

    /// The list of `each`, through which pointers may go from here on.
    pub(super) fn go_through(&mut self, key: &str, each: Option<&str>) -> Result<(), Refusal> {
        self.each = match each {
            None => None,
            Some(shown) if shown.ends_with("/*") => {
                let items = self.lookups.pointer(shown);
                let items = items.or_else(|problem| refuse(&format!("{key}.each"), problem))?;
                let shown = format!("body {}", shown.trim_end_matches("/*"));
                Some(Each { items, shown })
            }
            Some(_) => {
                return refuse(
                    &format!("{key}.each"),
                    "it points to a list's items: it ends in /*",
                );
            }
        };
        Ok(())
    }
}
