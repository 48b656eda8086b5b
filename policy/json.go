package policy

import (
	"encoding/json"
	"math"
	"time"
)

// Seconds is a duration; in JSON, a number of seconds.
type Seconds time.Duration

// OptionalSeconds are Seconds of which 0 means no limit: null in JSON.
type OptionalSeconds time.Duration

// Minutes is a duration; in JSON, a whole number of minutes.
type Minutes time.Duration

// MarshalJSON writes the number of seconds.
func (s Seconds) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(s).Seconds()) }

// UnmarshalJSON reads a number of seconds, rounded to microseconds, which is what the database stores. A number that no
// setting may have is bounded, to fit.
func (s *Seconds) UnmarshalJSON(text []byte) error {
	const most = 1e9
	var given *float64
	if err := json.Unmarshal(text, &given); err != nil || given == nil {
		return err
	}
	*s = Seconds(math.Round(min(max(*given, -most), most)*1e6)) * Seconds(time.Microsecond)
	return nil
}

// MarshalJSON writes the number of seconds, or null.
func (s OptionalSeconds) MarshalJSON() ([]byte, error) {
	if s == 0 {
		return []byte("null"), nil
	}
	return Seconds(s).MarshalJSON()
}

// UnmarshalJSON reads a number of seconds as Seconds do.
func (s *OptionalSeconds) UnmarshalJSON(text []byte) error { return (*Seconds)(s).UnmarshalJSON(text) }

// Whole is the number of whole minutes.
func (m Minutes) Whole() int { return int(m / Minutes(time.Minute)) }

// MarshalJSON writes the number of minutes.
func (m Minutes) MarshalJSON() ([]byte, error) { return json.Marshal(m.Whole()) }

// UnmarshalJSON reads a number of minutes. A number that no setting may have is bounded, to fit.
func (m *Minutes) UnmarshalJSON(text []byte) error {
	const most = 1e7
	var given *int
	if err := json.Unmarshal(text, &given); err != nil || given == nil {
		return err
	}
	*m = Minutes(min(max(*given, -most), most)) * Minutes(time.Minute)
	return nil
}

// rangeMembers is the JSON of a Range.
type rangeMembers[T any] struct {
	Default *T `json:"default"`
	Least   *T `json:"least"`
	Most    *T `json:"most"`
}

// MarshalJSON writes null for no limit.
func (r Range[T]) MarshalJSON() ([]byte, error) {
	shown := rangeMembers[T]{Least: &r.Least, Most: &r.Most}
	if r.Default != 0 {
		shown.Default = &r.Default
	}
	return json.Marshal(shown)
}

// UnmarshalJSON reads a range. An absent default is 0, and an absent upper limit at least the default.
func (r *Range[T]) UnmarshalJSON(text []byte) error {
	var given *rangeMembers[T]
	if err := json.Unmarshal(text, &given); err != nil || given == nil {
		return err
	}
	r.Default = orDefault(given.Default, 0)
	r.Least, r.Most = orDefault(given.Least, r.Least), orDefault(given.Most, max(r.Most, r.Default))
	return nil
}

// MarshalJSON writes {} for no holds.
func (h Holds) MarshalJSON() ([]byte, error) {
	if h == nil {
		h = Holds{}
	}
	return json.Marshal(map[Outcome]Seconds(h))
}

// UnmarshalJSON reads the settings of a policy. Absent and null settings have their defaults: those of ga-2021, but
// without Source and late responses, an expired delivery ends at once, dead letters are kept, and there is no retry
// window, which would end a longer time to live after 24 hours.
func (p *Policy) UnmarshalJSON(text []byte) error {
	type members Policy
	base := ga2021()
	given := members(base)
	given.Name, given.BuiltIn, given.Source = "", false, ""
	given.LateResponseWindow, given.RetryWindow = 0, 0
	given.Expiry, given.DeadLetterDefault = ExpiryAtTTL, DeadLetterRows
	given.Steps, given.Cells = nil, nil // not to be decoded into
	if err := json.Unmarshal(text, &given); err != nil {
		return err
	}
	if given.Steps == nil {
		given.Steps = base.Steps
	}
	if given.Cells == nil {
		given.Cells = base.Cells
	}
	if given.TTL.Default == 0 { // there is always a time to live
		given.TTL.Default = base.TTL.Default
	}
	*p = Policy(given)
	return nil
}

// UnmarshalJSON reads the settings of a probation. r has the defaults of those that are absent.
func (r *Probation) UnmarshalJSON(text []byte) error {
	type members Probation
	given := members(*r)
	given.Trigger, given.First, given.Max, given.ByOutcome = absent, absent, absent, nil
	if err := json.Unmarshal(text, &given); err != nil {
		return err
	}
	if len(given.ByOutcome) == 0 {
		given.ByOutcome = nil
	}
	none := given.Scope == ProbationNone
	setDefault(&given.Trigger, r.Trigger, none)
	setDefault(&given.First, r.First, none || given.ByOutcome != nil && given.Scope != ProbationBoth)
	setDefault(&given.Max, r.Max, given.First == 0)
	*r = Probation(given)
	return nil
}

// absent stands for a setting without a value. No setting may be negative.
const absent = math.MinInt32

// setDefault replaces an absent value by its default, which is 0 if the setting would have no effect.
func setDefault[T ~int | ~int64](value *T, otherwise T, unused bool) {
	switch {
	case *value != absent:
	case unused:
		*value = 0
	default:
		*value = otherwise
	}
}
