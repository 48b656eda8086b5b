package display

import (
	"reflect"
	"slices"
	"strings"

	"postrider/internal/query"
)

// Lists has an empty row of each list by its name. The struct tags of the rows declare the columns.
var Lists = map[string]any{
	"deliveries": query.DeliveryLine{}, "events": query.EventLine{}, "batches": query.BatchLine{},
	"dead-letters": query.DeadLetter{}, "operations": query.Operation{}, "topics": query.TopicLine{},
	"subscriptions": query.SubscriptionLine{}, "problems": query.Problem{}, "jobs": query.JobLine{},
	"audit": query.AuditLine{}, "members": query.MemberLine{},
}

// columnsOf are the columns of a list. The first is always shown; its cells link to the pages of the rows.
func columnsOf(list string) (columns []query.Column) {
	row, exists := Lists[list]
	if !exists {
		return nil
	}
	all := query.ColumnsOf(reflect.TypeOf(row))
	for _, c := range all {
		if c.Line || c.In != "" {
			continue
		}
		var sql []string
		for _, part := range all {
			if part.Key == c.Key || part.In == c.Key {
				sql = append(sql, part.SQL)
			}
		}
		c.SQL = strings.Join(sql, ", ")
		columns = append(columns, c)
	}
	if first := slices.IndexFunc(columns, func(c query.Column) bool { return !c.OffPages }); first > 0 {
		shown := columns[first]
		columns = slices.Insert(slices.Delete(columns, first, first+1), 0, shown)
	}
	return columns
}
