package policy

import "fmt"

// BatchSettings bound how many events one request carries. An event subscription sets them as maxEventsPerBatch and
// preferredBatchSizeInKilobytes.
//
// Source: Microsoft, Event Grid message delivery and retry, 2020-10-29, "Output batching".
type BatchSettings struct {
	MaxEvents          int // never exceeded, and never waited for
	PreferredKilobytes int // of the request's body, 1,024 bytes each: a target, for one larger event still goes alone
}

// Ranges of the two settings, and the value of one where only the other is set. The pages name no default; 64 KB is
// that of the management API and 10 events that of Event Grid on IoT Edge. The API's own default of 1 event cannot be
// meant here, for the namespace page (2023-11) says that setting either one switches batching on.
const (
	maxBatchEvents, maxBatchKilobytes         = 5000, 1024
	defaultBatchEvents, defaultBatchKilobytes = 10, 64
	maxEventsField, kilobytesField            = "maxEventsPerBatch", "preferredBatchSizeInKilobytes"
)

// ResolveBatch returns the settings in force and whether events are batched at all; nil means that a setting is absent.
// Both absent is off. So is a maximum of 1, the value that event subscriptions exported from Azure carry where nobody
// asked for batches: a CloudEvent then travels as one object, not as an array of one.
func ResolveBatch(maxEvents, preferredKilobytes *int) (settings BatchSettings, on bool) {
	if maxEvents == nil && preferredKilobytes == nil {
		return BatchSettings{MaxEvents: 1, PreferredKilobytes: defaultBatchKilobytes}, false
	}
	settings = BatchSettings{MaxEvents: defaultBatchEvents, PreferredKilobytes: defaultBatchKilobytes}
	if maxEvents != nil {
		settings.MaxEvents = *maxEvents
	}
	if preferredKilobytes != nil {
		settings.PreferredKilobytes = *preferredKilobytes
	}
	return settings, settings.MaxEvents > 1
}

// Batch is ResolveBatch for settings that somebody hands in. It is a *ValidationError on the field when a value is out
// of range (1 to 5000 events, 1 to 1024 KB), or when batches are asked for under a policy that delivers every event by
// itself.
func (p *Policy) Batch(maxEvents, preferredKilobytes *int) (settings BatchSettings, on bool, err error) {
	if err := batchRange(maxEventsField, maxEvents, maxBatchEvents); err != nil {
		return BatchSettings{}, false, err
	}
	if err := batchRange(kilobytesField, preferredKilobytes, maxBatchKilobytes); err != nil {
		return BatchSettings{}, false, err
	}
	settings, on = ResolveBatch(maxEvents, preferredKilobytes)
	if on && !p.Batching {
		return BatchSettings{}, false, p.noBatches(maxEvents != nil)
	}
	return settings, on, nil
}

func batchRange(field string, value *int, most int) error {
	if value == nil || *value >= 1 && *value <= most {
		return nil
	}
	return invalid(field, fmt.Sprintf("must be between 1 and %d, not %d", most, *value))
}

func (p *Policy) noBatches(maxSet bool) error {
	field, message := kilobytesField, "must be absent"
	if maxSet {
		field, message = maxEventsField, "must be 1 or absent"
	}
	return invalid(field, fmt.Sprintf("%s under retry policy %s, which delivers every event by itself", message, p.Name))
}

// Cut returns how many of the first events go into one request. sizes are their bytes in order, overhead the bytes that
// the delivery schema adds to each of them at most. The body is counted as it is sent, with the array's brackets and
// commas. The first event always goes, so the answer is 0 only where there is none; a second one goes only within the
// target.
func (b BatchSettings) Cut(sizes []int, overhead int) int {
	const brackets, comma = 2, 1
	most := min(max(b.MaxEvents, 1), len(sizes))
	room := b.PreferredKilobytes*1024 - brackets + comma // one comma fewer than events
	for n, size := range sizes[:most] {
		room -= size + overhead + comma
		if room < 0 && n > 0 {
			return n
		}
	}
	return most
}
