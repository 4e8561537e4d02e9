checkout.com POST 
content-type: application/json
user-agent: hookonce-sample
cko-signature: {{signature}}

{
  "id": "id_1",
  "type": "payment_approved",
  "created_on": "2025-06-15T15:06:40Z",
  "data": { "id": "pay_sample", "amount": 4200, "currency": "EUR" }
}
