package web_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
	"postrider/internal/filter"
)

// text is the visible text of a page, with white space as one space.
func text(page string) string {
	var words []string
	for tokens := html.NewTokenizer(strings.NewReader(page)); tokens.Next() != html.ErrorToken; {
		if token := tokens.Token(); token.Type == html.TextToken {
			words = append(words, strings.Fields(token.Data)...)
		}
	}
	return strings.Join(words, " ")
}

// hostile are texts that have an effect if a page does not escape them.
var hostile = []string{
	`<script>window.__x=1</script>`,
	`</script><script>window.__x=1</script>`,
	`"><img src=x onerror=window.__x=1>`,
	`' onmouseover='window.__x=1`,
	`<svg/onload=window.__x=1>`,
	`</pre></details></table><iframe src=javascript:window.__x=1>`,
	`</title><style>*{display:none}</style>`,
	`<!-- `,
	`<base href=//example.com/>`,
	`<meta http-equiv=refresh content=0;url=//example.com>`,
	`<form action=//example.com><button>log in again`,
	`javascript:window.__x=1`,
	`{{.}}{{template "main"}}`,
	`&lt;script&gt; &amp; &#60;b&#62;`,
	`'; drop table x; --`,
	"`${window.__x=1}`",
	"\u202egnp.exe",
	"<scr\u200bipt>",
	"\ufeff<script>",
	strings.Repeat("W", 5000),
}

// visibleText writes the invisible characters of hostile as pages do.
var visibleText = strings.NewReplacer("\u202e", "[U+202E]", "\u200b", "[U+200B]", "\ufeff", "[U+FEFF]")

// allowedElements are the elements of the templates. Any other element came from data.
var allowedElements = strings.Fields(
	`html head meta title link script body a header nav main aside h1 h2 h3 p div section dl dt ` +
		`dd ul ol li span code table thead tbody
	tr th td b small time details dialog kbd summary pre form label input textarea select option button fieldset ` +
		`legend noscript ` +
		`svg rect path`)

// addresses are the beginnings of addresses in templates.
var addresses = []string{"/ui/", "/openapi", "#main", "data:image/svg+xml,"}

// requireOnlyTemplateMarkup fails if a page has elements, handlers, styles or addresses that no template writes.
func requireOnlyTemplateMarkup(t *testing.T, page string) {
	t.Helper()
	for tokens := html.NewTokenizer(strings.NewReader(page)); tokens.Next() != html.ErrorToken; {
		token := tokens.Token()
		data := slices.Contains(token.Attr, html.Attribute{Key: "type", Val: "application/json"}) // browsers do not run it
		if foreign(token, data) {
			require.Fail(t, "no template writes this", token.String())
		}
		if token.Type == html.StartTagToken && token.Data == "script" && !data {
			require.Equal(t, html.EndTagToken, tokens.Next(), "no inline script")
		}
	}
}

// foreign reports whether no template writes the token; data is whether it is a script of JSON.
func foreign(token html.Token, data bool) bool {
	if token.Type != html.StartTagToken && token.Type != html.SelfClosingTagToken {
		return token.Type == html.CommentToken
	}
	return !slices.Contains(allowedElements, token.Data) ||
		slices.ContainsFunc(token.Attr, func(a html.Attribute) bool {
			return strings.HasPrefix(a.Key, "on") || slices.Contains([]string{"style", "srcdoc", "hx-on"}, a.Key) ||
				slices.Contains([]string{"href", "src", "action", "formaction", "hx-get", "hx-post"}, a.Key) &&
					!slices.ContainsFunc(addresses, func(start string) bool { return strings.HasPrefix(a.Val, start) }) ||
				token.Data == "script" && !data && a.Key != "src" && a.Key != "defer"
		})
}

func TestHostileTextIsEscaped(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i, bad := range hostile {
		b.insert(t, deadLetter{
			at: time.Now(), topic: bad, subscription: bad, eventID: bad, eventType: bad, subject: bad, reason: bad,
			outcome: bad,
			body:    fmt.Sprintf(`{"data":%s,"raw":"%s"}`, quoteJSON(t, bad), strings.ReplaceAll(bad, `"`, `\"`)),
		})
		b.subscribe(t, fmt.Sprint("topic", i), fmt.Sprint("name", i))
		b.Exec(t, "UPDATE postrider_internal.event_subscriptions SET name = $1, endpoint_base_url = $1 WHERE name = $2", bad,
			fmt.Sprint("name", i))
		b.Exec(t, "UPDATE postrider_internal.topics SET name = $1 WHERE name = $2", bad, fmt.Sprint("topic", i))
	}
	for path, fields := range map[string]int{"/ui/": 0, "/ui/subscriptions": 3, "/ui/topics": 1, "/ui/dead-letters": 5} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			page := b.page(t, path)
			requireOnlyTemplateMarkup(t, page)
			requireShows(t, page, fields)
		})
	}
	t.Run("a dead letter", func(t *testing.T) {
		t.Parallel()
		for _, id := range strings.Fields(b.value(t,
			"SELECT string_agg(dead_letter_id::text, ' ') FROM postrider.dead_letters")) {
			requireOnlyTemplateMarkup(t, b.page(t, "/ui/dead-letters/"+id))
		}
	})
	t.Run("a filter", func(t *testing.T) {
		t.Parallel()
		for _, path := range []string{
			"/ui/dead-letters?topic=", "/ui/dead-letters/redeliver?topic=", "/ui/dead-letters/" +
				"purge?reason=", "/ui/events?subjectPrefix=", "/ui/deliveries?eventId=", "/ui/subscriptions?name=",
			"/ui/topics?name=",
			"/ui/audit?actor=", "/ui/tail?topic=", "/ui/problems?topic=", "/ui/jobs?kind=", "/ui/batches?topic=",
		} {
			for _, bad := range hostile {
				response := b.request(http.MethodGet, path+url.QueryEscape(bad))
				require.Contains(t, []int{http.StatusOK, http.StatusBadRequest}, response.Code)
				requireOnlyTemplateMarkup(t, response.Body.String())
			}
		}
	})
}

// requireShows fails unless the page shows each hostile text at least so many times.
func requireShows(t *testing.T, page string, times int) {
	t.Helper()
	shown := text(page)
	for _, bad := range hostile {
		want := strings.Join(strings.Fields(bad), " ")
		count := strings.Count(shown, want)
		if spelled := visibleText.Replace(want); spelled != want {
			count += strings.Count(shown, spelled)
		}
		require.GreaterOrEqual(t, count, times, bad)
	}
}

// Texts of publishers and endpoints are escaped after they passed the database and the engine. The markup of each page
// has the labels, scopes and unique ids that screen readers and keyboards rely on.
func TestHostileTextIsEscapedEndToEnd(t *testing.T) {
	t.Parallel()
	texts := slices.DeleteFunc(slices.Clone(hostile), func(s string) bool { return len(s) > 1024 })
	chunks := slices.Collect(slices.Chunk(texts, 9)) // ten failures in a row would begin a probation
	b := setupRunning(t)
	b.seed(t, chunks[0]...)
	for i, some := range chunks[1:] {
		topic, url := fmt.Sprint("more", i), endpoint(t)
		for name, path := range map[string]string{"billing": "/hostile", "archive": "/status/404"} {
			b.subscribe(t, topic, name, to(url+path))
		}
		b.publish(t, topic, some...)
	}
	b.Become(t, len(texts), "SELECT count(*) FROM postrider.dead_letters")
	b.Become(t, len(texts),
		"SELECT count(*) FROM postrider.deliveries WHERE subscription = 'billing' AND attempts > 0")
	paths := b.everyPage(t)
	for list, query := range map[string]string{
		"events":       "SELECT system_id::text FROM postrider.events",
		"deliveries":   "SELECT delivery_id::text FROM postrider.deliveries WHERE subscription = 'archive'",
		"dead-letters": "SELECT dead_letter_id::text FROM postrider.dead_letters",
	} {
		for _, id := range strings.Fields(b.value(t, "SELECT string_agg(id, ' ') FROM ("+query+") AS ids (id)")) {
			paths = append(paths, "/ui/"+list+"/"+id)
		}
	}
	require.Greater(t, len(paths), 3*len(texts))
	for _, path := range append(paths, "/ui/deliveries?state=pending&hold=paused", "/ui/dead-letters?topic=none") {
		page := b.page(t, path)
		requireOnlyTemplateMarkup(t, page)
		requireValidMarkup(t, path, page)
		require.NotContains(t, page, "\u202e", path)
	}
	require.Contains(t, b.page(t, "/ui/deliveries/"+b.deliveryOf(t, "billing")), "X-Hostile")
}

// Stored and entered texts are escaped and kept unchanged.
func TestHostileTextInForms(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.CustomTopic(t, "own")
	for i, bad := range hostile {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			name := fmt.Sprint("name", i)
			b.subscribe(t, "orders", name, func(s *catalog.SubscriptionSpec) {
				s.EndpointURL, s.Labels = "https://example.com/"+bad, []string{bad}
				s.Filter = filter.Filter{
					IncludedEventTypes: []string{bad}, SubjectBeginsWith: bad, SubjectEndsWith: bad,
					AdvancedFilters: []filter.AdvancedFilter{{
						OperatorType: "StringIn", Key: bad, Values: []json.RawMessage{json.RawMessage(quoteJSON(t, bad))},
					}},
				}
				s.DeliveryAttributes = []endpointconf.DeliveryAttribute{{
					Name: bad, Type: endpointconf.AttributeStatic,
					AttributeProperties: endpointconf.AttributeProperties{Value: &bad},
				}}
				s.DeadLetterDestination = &catalog.DeadLetterDestination{
					EndpointType: catalog.DeadLetterBlob, Properties: &endpointconf.DeadLetterProperties{URL: bad, Prefix: bad},
				}
			})
			form := url.Values{}
			for _, do := range []string{"edit", "delete"} {
				path := "/ui/subscriptions/orders/" + name + "/" + do
				page := b.page(t, path)
				requireOnlyTemplateMarkup(t, page)
				requireValidMarkup(t, path, page)
				for field, values := range formOf(t, page) {
					form[field] = values
				}
			}
			require.Equal(t, bad, form.Get("filter.subjectBeginsWith"), "the field keeps every byte")
			b.rejectedAsText(t, "/ui/subscriptions/orders/"+name+"/edit", form, bad)
			for _, path := range []string{
				"/ui/new-topic", "/ui/subscriptions/new?topic=own", "/ui/topics/own/publish", "/ui/topics/own/keys",
				"/ui/policies/new?from=ga-2021",
			} {
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
