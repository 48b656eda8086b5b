package display

// Classes of columns.
const (
	long   = "long"
	wide   = "long wide"
	number = "number"
)

// owner is the column of an event subscription and its topic.
var owner = Column{Key: "subscription", Label: "Event subscription", Kind: long, SQL: "topic, subscription"}

// tables are the columns of each list.
var tables = map[string][]Column{
	"deliveries": {
		{Key: "delivery_id", Label: "Delivery"}, {Key: "state", Label: "State", SQL: "state, hold"},
		{Key: "event_type", Label: "Type", Kind: long}, {Key: "event_id", Label: "Event id", Kind: long},
		{Key: "subject", Label: "Subject", Kind: long, Off: true},
		{Key: "published_at", Label: "Published"}, owner,
		{Key: "attempts", Label: "Attempts", Kind: number, SQL: "attempts, reruns"},
		{Key: "last_outcome", Label: "Last outcome", Kind: long, SQL: "last_outcome, last_status"},
		{Key: "next", Label: "Next or ended", SQL: "coalesce(finished_at, next_attempt_at) as next_or_ended"},
		{Key: "reason", Label: "Reason", Kind: long, Off: true},
		{Key: "last_attempt_at", Label: "Last attempt", Off: true},
		{Key: "time_to_live_since", Label: "Time to live since", Off: true},
		{Key: "expires_at", Label: "Time to live until", Off: true},
		{Key: "batch_id", Label: "Batch", Off: true}, {Key: "system_id", Label: "System id", Kind: long, Off: true},
		{Key: "dead_letter_id", Label: "Dead letter", Kind: long, Off: true},
	},
	"events": {
		{Key: "published_at", Label: "Published"}, {Key: "event_type", Label: "Type", Kind: long},
		{Key: "subject", Label: "Subject", Kind: long}, {Key: "event_id", Label: "Event id", Kind: long},
		{Key: "topic", Label: "Topic", Kind: long}, {Key: "deliveries", Label: "Deliveries", Kind: wide, SQL: deliveryStates},
		{Key: "body_bytes", Label: "Size", Kind: number},
		{Key: "matched", Label: "Matched", Kind: number, Off: true},
		{Key: "source", Label: "Source", Kind: long, Off: true}, {Key: "event_time", Label: "Event time", Off: true},
		{Key: "schema", Label: "Schema", Off: true}, {Key: "system_id", Label: "System id", Kind: long, Off: true},
	},
	"batches": {
		{Key: "batch_id", Label: "Batch"}, {Key: "created_at", Label: "Created"},
		{Key: "state", Label: "State", SQL: "state, hold"}, owner,
		{Key: "members", Label: "Events", Kind: number}, {Key: "bytes", Label: "Size", Kind: number},
		{Key: "attempts", Label: "Attempts", Kind: number, SQL: "attempts, reruns"},
		{Key: "last_outcome", Label: "Last outcome", Kind: long, SQL: "last_outcome, last_status"},
		{Key: "next", Label: "Next or ended", SQL: "coalesce(finished_at, next_attempt_at) as next_or_ended"},
		{Key: "first_attempt_at", Label: "First attempt", Off: true},
		{Key: "last_attempt_at", Label: "Last attempt", Off: true},
	},
	"dead-letters": {
		{Key: "dead_lettered_at", Label: "Dead-lettered"}, {Key: "event_type", Label: "Type", Kind: long},
		{Key: "subject", Label: "Subject", Kind: long}, owner,
		{Key: "reason", Label: "Reason", Kind: long},
		{Key: "last_outcome", Label: "Last outcome", Kind: long, SQL: "last_outcome, last_status"},
		{Key: "attempts", Label: "Attempts", Kind: number},
		{Key: "event_id", Label: "Event id", Kind: long, Off: true},
		{Key: "redelivered_at", Label: "Redelivered", Off: true},
		{Key: "last_error", Label: "Last error", Kind: long, Off: true},
		{Key: "published_at", Label: "Published", Off: true},
		{Key: "last_attempt_at", Label: "Last attempt", Off: true},
		{Key: "source", Label: "Source", Kind: long, Off: true}, {Key: "event_time", Label: "Event time", Off: true},
		{Key: "schema", Label: "Schema", Off: true}, {Key: "retry_policy", Label: "Retry policy", Off: true},
		{Key: "endpoint_base_url", Label: "Endpoint", Kind: long, Off: true},
		{Key: "delivery_id", Label: "Delivery", Off: true}, {Key: "system_id", Label: "System id", Kind: long, Off: true},
		{Key: "dead_letter_id", Label: "Dead letter id", Kind: long, Off: true},
	},
	"operations": {
		{Key: "created_at", Label: "Started"}, {Key: "kind", Label: "Operation", Kind: long},
		{Key: "subscription", Label: "To", Kind: long}, {Key: "state", Label: "State"},
		{Key: "seen", Label: "Progress", Kind: number}, {Key: "failed", Label: "Failed", Kind: number},
		{Key: "started_by", Label: "Started by", Kind: long}, {Key: "finished_at", Label: "Finished", Off: true},
		{Key: "rate", Label: "Rate", Off: true}, {Key: "operation_id", Label: "Id", Kind: long, Off: true},
	},
	"topics": {
		{Key: "topic", Label: "Topic", Kind: long}, {Key: "input_schema", Label: "Input schema"},
		{Key: "spark", Label: "Last hour"}, {Key: "published", Label: "Published, 24 h", Kind: number},
		{Key: "matched", Label: "Matched, 24 h", Kind: number}, {Key: "last_published", Label: "Last event"},
		{Key: "subscriptions", Label: "Event subscriptions", Kind: number}, {Key: "kind", Label: "Kind", Off: true},
		{Key: "retention", Label: "Retention", Off: true}, {Key: "created_at", Label: "Created", Off: true},
	},
	"subscriptions": {
		owner, {Key: "state", Label: "State"}, {Key: "detail", Label: "Detail", Kind: long},
		{Key: "endpoint_base_url", Label: "Endpoint", Kind: long}, {Key: "spark", Label: "Last hour"},
		{Key: "succeeded", Label: "Successful", Kind: number}, {Key: "dead_letters", Label: "Dead letters", Kind: number},
		{Key: "retry_policy", Label: "Retry policy"},
		{Key: "endpoint_kind", Label: "Kind", Off: true}, {Key: "schema", Label: "Delivery schema", Off: true},
		{Key: "limits", Label: "Limits", Off: true}, {Key: "created_at", Label: "Created", Off: true},
	},
	"problems": {
		owner, {Key: "outcome", Label: "Outcome"}, {Key: "failures", Label: "Failed attempts", Kind: number},
		{Key: "last", Label: "Last"},
		{Key: "response", Label: "Last response", Kind: wide},
		{Key: "next", Label: "Next", Kind: long}, {Key: "dead_letters", Label: "Dead letters"},
		{Key: "first", Label: "First", Off: true},
	},
	"jobs": {
		{Key: "id", Label: "Job"}, {Key: "kind", Label: "Kind"}, {Key: "state", Label: "State"},
		{Key: "for", Label: "For", Kind: long}, {Key: "scheduled_at", Label: "Scheduled"},
		{Key: "attempted_at", Label: "Fetched"}, {Key: "error", Label: "Job error", Kind: long},
		{Key: "queue", Label: "Queue", Off: true}, {Key: "node", Label: "Node", Off: true},
		{Key: "created_at", Label: "Created", Off: true},
	},
	"audit": {
		{Key: "at", Label: "Time"}, {Key: "actor", Label: "Actor", Kind: long}, {Key: "action", Label: "Action"},
		{Key: "object", Label: "Event subscription", Kind: long, SQL: "subscription"},
		{Key: "topic", Label: "Topic", Kind: long},
		{Key: "details", Label: "Details", Kind: long}, {Key: "changes", Label: "Changes", Kind: long},
		{Key: "address", Label: "Address", Off: true},
	},
}

// deliveryStates counts the deliveries of an event by their state.
const deliveryStates = `(select jsonb_object_agg(state, n) from (select state, count(*) as n
          from postrider.deliveries d where d.system_id = events.system_id group by state) s) as deliveries`
