package web

import (
	"cmp"
	"html/template"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"postrider/internal/access"
	"postrider/internal/catalog"
	"postrider/internal/cli"
	"postrider/internal/query"
	"postrider/web/display"
	"postrider/web/site"
)

// views are the types of the templates.
var views = map[string]any{
	"overview": overviewView{Overview: emptyOverview()}, "problems": problemsView{Filter: &display.Filter{}},
	"problem": problemView{},
	"tail":    tailView{Filter: &display.Filter{}},
	"events":  eventsView{List: emptyList[query.EventLine]()}, "event": eventView{},
	"deliveries": deliveriesView{List: emptyList[query.DeliveryLine]()},
	"delivery":   deliveryView{}, "batches": emptyList[query.BatchLine](), "batch": batchView{},
	"dead-letters": deadLettersView{List: emptyList[query.DeadLetter]()}, "dead-letter": deadLetterView{},
	"dead-letter-purge": deadLetterView{}, "event-redeliver": redeliverEventView{},
	"many": &manyView{}, "many-repair": &manyView{},
	"operations": emptyList[query.Operation](), "operation": operationView{},
	"topics": emptyList[query.TopicLine](), "topic": topicView{TopicDetails: query.TopicDetails{Day: &query.Counts{}}},
	"subscriptions": emptyList[query.SubscriptionLine](), "subscription": subscriptionView{
		Subscription: &catalog.Subscription{}, Details: query.SubscriptionDetails{Day: &query.Counts{}},
	},
	"policies": policiesView{}, "jobs": jobsView{List: emptyList[query.JobLine]()}, "storage": storageView{},
	"audit": emptyList[query.AuditLine](), "sign-in": signInView{}, "account": accountView{},
	"users": usersView{List: emptyList[access.User]()}, "api-keys": apiKeysView{List: emptyList[access.APIKey]()},
	"form": formView{}, "delete": deletionView{}, "subscription-topic": chooseView{}, "topic-keys": keysView{},
	"publish": publishView{}, "error": site.ErrorView{}, "search": &searchView{},
}

func emptyOverview() *query.Overview {
	return &query.Overview{LastHour: &query.Counts{}, Day: &query.Counts{}}
}

func emptyList[T any]() site.List[T] { return site.List[T]{Filter: &display.Filter{}} }

// html/template finds missing fields and unsafe places only when it executes a template. Each is executed with an
// empty value and with a value in which every pointer is set and every list has a row.
func TestTemplatesExecute(t *testing.T) {
	t.Parallel()
	p := newTestPages(t)
	names, err := files.ReadDir("templates")
	require.NoError(t, err)
	for _, file := range names {
		name := strings.TrimSuffix(file.Name(), ".html")
		if name == "layout" || strings.HasSuffix(name, "parts") {
			continue
		}
		view, ok := views[name]
		require.True(t, ok, "the test has no view for template %s", name)
		filled := reflect.New(reflect.TypeOf(view)).Elem()
		fill(filled, 0)
		for _, sample := range []any{view, filled.Interface()} {
			f := site.Frame{View: sample, Trail: []display.Link{{Href: "/", Text: "x"}}, Done: "x", Rejected: "x", Live: true}
			_, err := p.Page(name, f)
			require.NoError(t, err)
		}
	}
}

// Each column of each list shows the value of its field.
func TestCellsExecute(t *testing.T) {
	t.Parallel()
	p := newTestPages(t)
	for list, row := range display.Lists {
		filled := reflect.New(reflect.TypeOf(row)).Elem()
		fill(filled, 0)
		columns := display.DefaultTable(list, nil).All
		require.NotEmpty(t, columns, list)
		for _, column := range columns {
			_, err := p.Cell(list, column, row)
			require.NoError(t, err)
			cell, err := p.Cell(list, column, filled.Interface())
			require.NoError(t, err)
			require.NotEmpty(t, strings.TrimSpace(string(cell)), "%s: no value in the column %s", list, column.Label)
		}
	}
}

// The pages of a bulk operation show every member of its filter, and the command below them names those that it lacks.
func TestFiltersAreShown(t *testing.T) {
	t.Parallel()
	for _, of := range []any{query.DeadLetterFilter{}, query.DeliveryFilter{}} {
		all := reflect.New(reflect.TypeOf(of)).Elem()
		fill(all, 0)
		page, labels := shown(t, "filter-facts", all.Interface()), map[string]bool{}
		for i := range all.NumField() {
			one := reflect.New(all.Type()).Elem()
			one.Field(i).Set(all.Field(i))
			facts, name := display.FactsOf(one.Addr().Interface()), all.Type().Field(i).Name
			require.Len(t, facts, 1, name)
			require.True(t, facts[0].Text != "" || facts[0].Time != nil, name)
			require.Contains(t, page, "<dt>"+facts[0].Label+"</dt>", name)
			require.False(t, labels[facts[0].Label], "%s: two members have the label %s", name, facts[0].Label)
			labels[facts[0].Label] = true
			if filter, is := one.Interface().(query.DeadLetterFilter); is {
				export := display.ExportOf(filter)
				require.NotEqual(t, len(export.Missing) > 0, strings.Contains(export.Command, " --"), name)
			}
		}
	}
	facts := display.FactsOf(query.DeadLetterFilter{
		LastStatus: new(0), MinAttempts: new(3), DeadLetteredUntil: new(time.Now()), DeadLetterIDs: []uuid.UUID{},
	})
	for i, want := range []string{
		"Last status no response", "Min. attempts 3", "Dead-lettered before ", "Selected by id 0",
	} {
		require.Equal(t, want, facts[i].Label+" "+facts[i].Text)
	}
}

// The command has a flag for each member that the page does not name as missing, and no other.
func TestExportHasTheFlags(t *testing.T) {
	t.Parallel()
	var verbs struct {
		Deadletter cli.DeadletterCmd `cmd:""`
	}
	parser, err := kong.New(&verbs)
	require.NoError(t, err)
	flags := map[string]string{}
	for _, leaf := range parser.Model.Leaves(false) {
		for _, flag := range leaf.Flags {
			if leaf.Name == "export" {
				flags[flag.Tag.Get("api")] = flag.Name
			}
		}
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[query.DeadLetterFilter]()) {
		member, has := field.Tag.Lookup("query")
		if !has {
			continue
		}
		require.Equal(t, flags[member] != "", slices.Contains(display.ExportFlags, member), member)
		if flags[member] != "" {
			require.Equal(t, flags[member], cmp.Or(field.Tag.Get("name"), member))
		}
	}
}

// newTestPages is a dashboard without a database, which can render pages.
func newTestPages(t *testing.T) *pages {
	t.Helper()
	p := &pages{Site: &site.Site{Now: time.Now}}
	require.NoError(t, p.load())
	p.Templates.Funcs(template.FuncMap{"target": func(_, _, url string) display.Target { // without a catalog
		return display.Target{Kind: "Kafka topic", URL: url}
	}})
	return p
}

// shown is a part of a page as text.
func shown(t *testing.T, part string, view any) string {
	t.Helper()
	var out strings.Builder
	require.NoError(t, newTestPages(t).Templates.ExecuteTemplate(&out, part, view))
	return out.String()
}

// fillDepth is deeper than any view and ends recursive types.
const fillDepth = 8

// fill sets every pointer and gives every list a row.
func fill(v reflect.Value, depth int) {
	if depth > fillDepth || !v.CanSet() && v.Kind() != reflect.Struct {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth+1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth+1)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), depth+1)
		}
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	default:
	}
}
