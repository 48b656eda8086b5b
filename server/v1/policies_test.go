package v1_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/policy"
	v1 "postrider/server/v1"
)

// TestPolicyShowsEveryField: each field of a policy has its own place in the JSON. Otherwise a new field would be lost
// when a policy is read and written.
func TestPolicyShowsEveryField(t *testing.T) {
	t.Parallel()
	builtin, ok := policy.Builtin("namespace-2023") // the one whose lists and maps all have entries
	require.True(t, ok)
	p := builtin.Clone()
	seen := map[string]string{describe(t, &p): "no change"}
	changes := 0
	eachChange(t, "Policy", reflect.ValueOf(&p).Elem(), func(path string) {
		changes++
		shown := describe(t, &p)
		require.NotContains(t, seen, shown, "%s looks like %s", path, seen[shown])
		seen[shown] = path
	})
	require.Equal(t, builtin, p, "every change was undone")
	require.Greater(t, changes, reflect.TypeFor[policy.Policy]().NumField())
}

func describe(t *testing.T, p *policy.Policy) string {
	t.Helper()
	text, err := json.Marshal(v1.DescribePolicy(p, 0))
	require.NoError(t, err)
	return string(text)
}

// eachChange gives every value in v, one at a time, a value it did not have, calls changed and puts the old one back.
// Of a list it changes the first entry and the length.
func eachChange(t *testing.T, path string, v reflect.Value, changed func(path string)) {
	t.Helper()
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if !v.Type().Field(i).IsExported() { // no column: set by Resolve and Scaled
				continue
			}
			eachChange(t, path+"."+v.Type().Field(i).Name, v.Field(i), changed)
		}
	case reflect.Slice:
		require.NotEmpty(t, v.Interface(), path)
		eachChange(t, path+"[0]", v.Index(0), changed)
		whole := v.Slice(0, v.Len())
		v.Set(v.Slice(0, v.Len()-1))
		changed(path)
		v.Set(whole)
	case reflect.Map:
		require.NotEmpty(t, v.Interface(), path)
		for _, key := range v.MapKeys() {
			eachEntryChange(t, fmt.Sprintf("%s[%s]", path, key), v, key, changed)
		}
	default:
		old := reflect.ValueOf(v.Interface())
		v.Set(other(t, path, old))
		changed(path)
		v.Set(old)
	}
}

func eachEntryChange(t *testing.T, path string, m, key reflect.Value, changed func(path string)) {
	t.Helper()
	old := m.MapIndex(key)
	m.SetMapIndex(key, other(t, path, old))
	changed(path)
	m.SetMapIndex(key, reflect.Value{})
	changed(path + " left out")
	m.SetMapIndex(key, old)
}

// other is a value of the same type that v is not: for a span two minutes more, since the time to live is whole
// minutes.
func other(t *testing.T, path string, v reflect.Value) reflect.Value {
	t.Helper()
	changed := reflect.New(v.Type()).Elem()
	switch {
	case v.Type() == reflect.TypeFor[time.Duration]():
		changed.SetInt(v.Int() + int64(2*time.Minute))
	case v.Kind() == reflect.String:
		changed.SetString(v.String() + "x")
	case v.Kind() == reflect.Bool:
		changed.SetBool(!v.Bool())
	case v.CanInt():
		changed.SetInt(v.Int() + 2)
	case v.CanFloat():
		changed.SetFloat(v.Float() + 0.25)
	default:
		require.Fail(t, "a kind of field this test cannot change", "%s is a %s", path, v.Type())
	}
	return changed
}

// Durations are numbers of seconds, no limit is null, and lists are never null.
func TestPolicyOptionsInJSON(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"ga-2019": `{
			"lateResponseWindowInSeconds":180, "retryWindowInSeconds":86400, "jitterFraction":0.1, "jitterCapInSeconds":3,
			"expiry":"at_ttl", "honorRetryAfter":false, "retryAfterCapInSeconds":3600, "retryTransportErrors":true,
			"deadLetterDefault":"none", "deadLetterDelayInSeconds":300, "deadLetterExportWindowInSeconds":14400,
			"batching":false, "probation":{"scope":"endpoint","trigger":10,"firstInSeconds":300,"maxInSeconds":14400,
			"action":"hold","byOutcome":{}}}`,
		"namespace-2023": `{
			"lateResponseWindowInSeconds":0, "retryWindowInSeconds":null, "jitterFraction":0, "expiry":"next_attempt",
			"retryTransportErrors":false, "batching":true,
			"probation":{"scope":"event_subscription","trigger":1,"firstInSeconds":0,"maxInSeconds":0,"action":"documented",
			"byOutcome":{"Busy":10, "TimedOut":10, "SocketError":30, "NotFound":300, "ResolutionError":300, "Disabled":300,
			"Full":300, "Unauthorized":300, "Forbidden":300, "InvalidAzureFunctionDestination":600}}}`,
		"": `{"stepsInSeconds":[], "statusTable":[]}`,
	} {
		p, ok := policy.Builtin(name)
		require.Equal(t, name != "", ok)
		var want, shown map[string]any
		require.NoError(t, json.Unmarshal([]byte(text), &want))
		require.NoError(t, json.Unmarshal([]byte(describe(t, &p)), &shown))
		for member, value := range want {
			require.Equal(t, value, shown[member], "%s: %s", name, member)
		}
	}
}
