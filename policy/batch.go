package policy

import "fmt"

// BatchSettings bound how many events one request carries. An event subscription sets them as maxEventsPerBatch and
// preferredBatchSizeInKilobytes.
//
// Source: Microsoft, Event Grid message delivery and retry, 2020-10-29, "Output batching".
type BatchSettings struct {
	MaxEvents          int // most events of one request; postrider does not wait for them
	PreferredKilobytes int // target for the request's body, in 1,024 bytes; a larger single event is sent alone
}

// Defaults of one setting if only the other is set. The pages name none: 64 KB is that of the management API, 10 events
// that of Event Grid on IoT Edge. The API's default of 1 event cannot apply here, for the namespace page (2023-11) says
// that either setting switches batching on.
const defaultBatchEvents, defaultBatchKilobytes = 10, 64

// ResolveBatch returns the settings in force and whether events are batched; nil means that a setting is absent.
// Batching is off if both are absent, and if the maximum is 1, which event subscriptions exported from Azure carry: a
// CloudEvent is then sent as one object, not as an array of one.
func ResolveBatch(maxEvents, preferredKilobytes *int) (settings BatchSettings, on bool) {
	if maxEvents == nil && preferredKilobytes == nil {
		return BatchSettings{MaxEvents: 1, PreferredKilobytes: defaultBatchKilobytes}, false
	}
	settings = BatchSettings{
		MaxEvents:          orDefault(maxEvents, defaultBatchEvents),
		PreferredKilobytes: orDefault(preferredKilobytes, defaultBatchKilobytes),
	}
	return settings, settings.MaxEvents > 1
}

// CheckBatch returns a *ValidationError if the settings switch batching on and p delivers each event in its own
// request.
func (p *Policy) CheckBatch(maxEvents, preferredKilobytes *int) error {
	if _, on := ResolveBatch(maxEvents, preferredKilobytes); !on || p.Batching {
		return nil
	}
	field, message := "preferredBatchSizeInKilobytes", "must be absent"
	if maxEvents != nil {
		field, message = "maxEventsPerBatch", "must be 1 or absent"
	}
	return invalid(field, fmt.Sprintf("%s under retry policy %s, which delivers each event separately", message, p.Name))
}

// Cut returns how many of the first events go into one request. sizes are their bytes in order. The array's brackets
// and commas count. It is 0 only if there are no events; the first event always goes, a second one only within the
// target.
func (b BatchSettings) Cut(sizes []int) int {
	const brackets, comma = 2, 1
	most := min(max(b.MaxEvents, 1), len(sizes))
	capacity := b.PreferredKilobytes*1024 - brackets + comma // one comma fewer than events
	for n, size := range sizes[:most] {
		capacity -= size + comma
		if capacity < 0 && n > 0 {
			return n
		}
	}
	return most
}
