package web_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
	"postrider/internal/event"
	"postrider/internal/filter"
)

// Stored and entered texts are escaped and kept unchanged.
func TestHostileTextInForms(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.store.Maintenance.EnsurePartitions(t.Context()))
	mapped := event.Mapping{
		Type: "Json", Properties: event.MappingProperties{
			EventType: &event.MappedFieldWithDefault{SourceField: "a"}, Subject: &event.MappedFieldWithDefault{SourceField: "b"},
		},
	}
	_, _, err := b.store.Topics.Put(t.Context(), "own",
		catalog.TopicSpec{Kind: catalog.TopicBasic, InputSchema: event.Custom, InputSchemaMapping: &mapped})
	require.NoError(t, err)
	for i, bad := range hostile {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			name := fmt.Sprint("name", i)
			b.subscribe(t, "orders", name, func(s *catalog.SubscriptionSpec) {
				s.EndpointURL, s.Labels = "https://example.com/"+bad, []string{bad}
				s.Filter = filter.Filter{
					IncludedEventTypes: []string{bad}, SubjectBeginsWith: bad, SubjectEndsWith: bad,
					AdvancedFilters: []filter.AdvancedFilter{{OperatorType: "StringIn", Key: bad, Values: raws(quoteJSON(t, bad))}},
				}
				s.DeliveryAttributes = []endpointconf.DeliveryAttribute{
					{
						Name: bad, Type: endpointconf.AttributeStatic,
						AttributeProperties: endpointconf.AttributeProperties{Value: &bad},
					},
				}
				s.DeadLetterDestination = &catalog.DeadLetterDestination{
					EndpointType: catalog.DeadLetterBlob, Properties: &endpointconf.DeadLetterProperties{URL: bad, Prefix: bad},
				}
			})
			form := url.Values{}
			for _, path := range []string{"/ui/subscriptions/orders/" + name + "/edit", "/ui/subscriptions/orders/" + name +
				"/delete"} {
				page := b.page(t, path)
				requireOnlyTemplateMarkup(t, page)
				requireValidMarkup(t, path, page)
				for field, values := range formOf(t, page) {
					form[field] = values
				}
			}
			require.Equal(t, bad, form.Get("filter.subjectBeginsWith"), "the field keeps every byte")
			b.rejectedAsText(t, "/ui/subscriptions/orders/"+name+"/edit", form, bad)
			for _, path := range []string{"/ui/new-topic", "/ui/subscriptions/" +
				"new?topic=own", "/ui/topics/own/publish", "/ui/topics/own/keys", "/ui/policies/new?from=ga-2021"} {
				b.rejectedAsText(t, path, formOf(t, b.page(t, path)), bad)
			}
			for _, path := range []string{"/ui/subscriptions/new?topic=", "/ui/policies/new?from="} {
				response := b.request(http.MethodGet, path+url.QueryEscape(bad))
				require.Equal(t, http.StatusNotFound, response.Code)
				requireOnlyTemplateMarkup(t, response.Body.String())
			}
		})
	}
}

// rejectedAsText sends the form with this text in every field, with each of its buttons.
func (b *dashboard) rejectedAsText(t *testing.T, path string, form url.Values, bad string) {
	t.Helper()
	sent := url.Values{}
	for field := range form {
		sent.Set(field, bad)
	}
	for _, button := range []string{"", "test", "add", "remove", "preview", "regenerate"} {
		response := b.post(path, typed(sent, button, bad, "event", bad))
		require.GreaterOrEqual(t, response.Code, 200)
		require.Less(t, response.Code, 500, response.Body)
		requireOnlyTemplateMarkup(t, response.Body.String())
	}
}

func raws(values ...string) (list []json.RawMessage) {
	for _, value := range values {
		list = append(list, json.RawMessage(value))
	}
	return list
}
