//! The bucket for payloads that fit on no record.

use std::time::Duration;

use domain::limits;
use providers::Provider;
use runtime::environment::names;
use serde_json::{Value, json};

use super::{
    FUNCTIONS, OBJECTS,
    document::{
        actions, attribute, branches, environment, list, properties, resource, statements,
        template, text,
    },
};

const DAY: Duration = Duration::from_secs(86_400);

#[test]
fn a_payload_is_kept_for_a_month_longer_than_any_provider_needs_its_record() {
    let parameter = &template()["Parameters"]["PayloadRetentionDays"];
    let kept = DAY * u32::try_from(parameter["Default"].as_u64().expect("days")).expect("a few");
    let needed = Provider::builtin_names()
        .iter()
        .map(|name| Provider::builtin(name).expect("in the catalogue").windows().required())
        .map(|required| required.retention)
        .max()
        .expect("providers");
    assert!(needed > limits::UNKNOWN_WINDOW, "of some a longer window is known");
    assert!(kept >= needed + 30 * DAY, "{needed:?}");
    let [rule] = &rules()[..] else { panic!("one rule, for all objects") };
    assert_eq!(rule["ExpirationInDays"], json!({ "Ref": "PayloadRetentionDays" }));
    assert_eq!(rule["Status"], "Enabled");
    assert_eq!(rule["AbortIncompleteMultipartUpload"]["DaysAfterInitiation"], 1);
    assert_eq!([&rule["Prefix"], &rule["TagFilters"]], [&Value::Null; 2]);
}

fn rules() -> Vec<&'static Value> {
    list(&properties("Payloads")["LifecycleConfiguration"]["Rules"]).collect()
}

#[test]
fn the_bucket_is_private_and_outlives_its_stack_as_the_ledger_does() {
    let bucket = properties("Payloads");
    for block in
        ["BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets"]
    {
        assert_eq!(bucket["PublicAccessBlockConfiguration"][block], true, "{block}");
    }
    let owner = json!([{ "ObjectOwnership": "BucketOwnerEnforced" }]);
    assert_eq!(bucket["OwnershipControls"]["Rules"], owner);
    for name in ["Payloads", "PayloadsPolicy"] {
        for policy in ["DeletionPolicy", "UpdateReplacePolicy"] {
            assert_eq!(resource(name)[policy], "Retain", "{name}: {policy}");
        }
    }
}

#[test]
fn whoever_comes_without_tls_is_refused_whatever_he_may() {
    let policy = properties("PayloadsPolicy");
    assert_eq!(policy["Bucket"], json!({ "Ref": "Payloads" }));
    let refused = json!([{
        "Effect": "Deny",
        "Principal": { "AWS": "*" },
        "Action": "s3:*",
        "Resource": [attribute("Payloads.Arn"), { "Fn::Sub": OBJECTS }],
        "Condition": { "Bool": { "aws:SecureTransport": "false" } },
    }]);
    assert_eq!(policy["PolicyDocument"]["Statement"], refused);
}

#[test]
fn payloads_are_encrypted_by_the_ledgers_key_where_there_is_one_and_by_s3_otherwise() {
    let encryption =
        &properties("Payloads")["BucketEncryption"]["ServerSideEncryptionConfiguration"];
    let [rule] = &list(encryption).collect::<Vec<_>>()[..] else { panic!("one rule") };
    let by_default = &rule["ServerSideEncryptionByDefault"];
    let either = |with: Value, without: Value| json!({ "Fn::If": ["LedgerHasKey", with, without] });
    let nothing = json!({ "Ref": "AWS::NoValue" });
    let key = json!({ "Ref": "LedgerKeyArn" });
    assert_eq!(by_default["SSEAlgorithm"], either(json!("aws:kms"), json!("AES256")));
    assert_eq!(by_default["KMSMasterKeyID"], either(key, nothing.clone()));
    assert_eq!(rule["BucketKeyEnabled"], either(json!(true), nothing));
}

/// S3 uses a key in the name of who calls it: a put makes a data key, and a get opens it.
#[test]
fn the_key_is_used_for_no_more_than_to_put_and_to_get() {
    for (function, used) in [
        ("Receiver", Some("kms:GenerateDataKey")),
        ("Worker", Some("kms:Decrypt")),
        ("Sweeper", None),
    ] {
        let role = properties(&format!("{function}Role"));
        let conditional: Vec<_> = list(&role["Policies"])
            .flat_map(|policy| list(&policy["PolicyDocument"]["Statement"]))
            .filter(|statement| statement["Fn::If"][1]["Sid"] == "PayloadKey")
            .collect();
        assert_eq!(conditional.len(), usize::from(used.is_some()), "{function}");
        for statement in conditional {
            let [condition, statement, _] = branches(statement);
            assert_eq!(condition, "LedgerHasKey");
            assert_eq!(actions(statement), [used.expect("an action")]);
            assert_eq!(statement["Resource"], json!({ "Ref": "LedgerKeyArn" }));
            let through = json!({ "StringLike": { "kms:ViaService": "s3.*.amazonaws.com" } });
            assert_eq!(statement["Condition"], through);
        }
    }
}

#[test]
fn the_bucket_that_a_function_is_told_is_the_one_that_it_may_use() {
    for (function, _) in FUNCTIONS {
        let told = environment(function).get(names::PAYLOADS_BUCKET).cloned();
        let rights = statements(function);
        let may = rights.iter().flat_map(|s| actions(s)).any(|action| action.starts_with("s3:"));
        assert_eq!(told.is_some(), may, "{function}");
        assert!(told.is_none_or(|told| text(&told["Ref"]) == "Payloads"), "{function}");
    }
}
