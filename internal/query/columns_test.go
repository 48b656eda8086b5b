package query_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/access"
	"postrider/internal/query"
	"postrider/internal/sqlquery"
)

// listed are the rows of the lists of the REST API.
var listed = []any{
	query.DeliveryLine{},
	query.EventRow{},
	query.BatchLine{},
	query.DeadLetter{},
	query.Operation{},
	query.AuditLine{},
	query.Problem{},
	access.User{},
	access.APIKey{},
	sqlquery.Saved{},
}

// Each column of a list that is in the API has a value in the JSON of a row, and each name is unique.
func TestColumnsHaveValues(t *testing.T) {
	t.Parallel()
	for _, row := range append(listed, query.AttemptLine{}, query.MemberLine{}) {
		of := reflect.TypeOf(row)
		filled := reflect.New(of).Elem()
		for _, c := range query.ColumnsOf(of) {
			fill(filled.FieldByIndex(c.Index))
		}
		text, err := json.Marshal(filled.Interface())
		require.NoError(t, err, of)
		var members map[string]any
		require.NoError(t, json.Unmarshal(text, &members), of)
		keys, titles := map[string]bool{}, map[string]bool{}
		for _, c := range query.ColumnsOf(of) {
			require.False(t, keys[c.Key] || titles[c.Title], "%s: two columns are %s or %s", of, c.Key, c.Title)
			keys[c.Key], titles[c.Title] = true, true
			if c.Member != "" {
				require.NotNil(t, members[c.Member], "%s: no value of column %s at %s", of, c.Label, c.Member)
			}
		}
		for _, c := range query.ColumnsOf(of) {
			require.True(t, c.In == "" || keys[c.In], "%s: column %s is in %s, which is none", of, c.Label, c.In)
		}
	}
	for _, row := range listed {
		require.Regexp(t, `^/v1/[a-zA-Z]+$`, query.KeyOf(reflect.TypeOf(row)).Tag.Get("list"))
	}
}

// fill sets a field to a value that is not empty.
func fill(v reflect.Value) {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(1, 0)))
	case query.JSON:
		v.SetString("{}")
	case json.RawMessage:
		v.SetBytes([]byte("{}"))
	default:
		switch v.Kind() {
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem())
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		default:
			return
		}
	}
}
