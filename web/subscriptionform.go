package web

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"postrider/catalog"
	"postrider/policy"
	"postrider/policy/filter"
	"postrider/web/display"
)

// The lists of the form of an event subscription.
const (
	filterList = "filter.advancedFilters"
	headerList = "deliveryAttributeMappings"
)

// The kinds of header, as the form has them: the API's Static is two.
const (
	headerStatic  = "static"
	headerSecret  = "secret"
	headerDynamic = "dynamic"
)

const minutesADay, minutesAnHour = 24 * 60, 60

// subscriptionForm is the form of an event subscription as it is stored. What was left to a default is empty. Of the
// endpoint and of secrets there is nothing in it: who types nothing keeps them.
func subscriptionForm(s *catalog.SubscriptionSpec) *form {
	f := newForm()
	for name, value := range map[string]string{
		"endpointKind": string(s.EndpointKind), "eventDeliverySchema": string(s.EventDeliverySchema),
		"endpointValidation":              string(s.EndpointValidation),
		"retryPolicy.policy":              s.RetryPolicy.Policy,
		"retryPolicy.maxDeliveryAttempts": wholeText(s.RetryPolicy.MaxDeliveryAttempts),
		"maxEventsPerBatch":               wholeText(s.MaxEventsPerBatch),
		"preferredBatchSizeInKilobytes":   wholeText(s.PreferredBatchSizeInKilobytes),
		"maxConcurrentDeliveries":         wholeText(s.MaxConcurrentDeliveries),
		"signing.enabled":                 checkText(s.Signing.Enabled),
		"behavior":                        string(s.Behavior), "honorRetryAfter": perhapsText(s.HonorRetryAfter),
		"retryTransportErrors": perhapsText(s.RetryTransportErrors),
		"labels":               linesOf(s.Labels), "deadLetterDestination.endpointType": "",
	} {
		f.set(name, value)
	}
	if s.ProbationAction != nil {
		f.set("probationAction", string(*s.ProbationAction))
	}
	if s.ExpirationTimeUTC != nil {
		f.set("expirationTimeUtc", secondsText(*s.ExpirationTimeUTC))
	}
	f.fillTimeToLive(s.RetryPolicy.EventTimeToLiveInMinutes)
	if d := s.DeadLetterDestination; d != nil {
		f.set("deadLetterDestination.endpointType", string(d.EndpointType))
		f.fillDestination(d.Properties)
	}
	f.fillConnection(&s.Connection)
	f.fillFilter(&s.Filter)
	f.fillHeaders(s.DeliveryAttributes)
	return f
}

func (f *form) fillTimeToLive(minutes *int) {
	if minutes == nil {
		return
	}
	for _, part := range []struct {
		name  string
		value int
	}{{"days", *minutes / minutesADay}, {"hours", *minutes % minutesADay / minutesAnHour}, {"minutes", *minutes %
		minutesAnHour}} {
		if part.value > 0 {
			f.set("retryPolicy.eventTimeToLiveInMinutes."+part.name, strconv.Itoa(part.value))
		}
	}
}

func (f *form) fillDestination(p *policy.DeadLetterProperties) {
	if p == nil {
		return
	}
	const at = "deadLetterDestination.properties."
	f.set(at+"url", p.URL)
	f.set(at+"prefix", p.Prefix)
	f.set(at+"resourceId", p.ResourceID)
	f.set(at+"blobContainerName", p.BlobContainerName)
}

func (f *form) fillConnection(c *policy.Connection) {
	if c.MinimumTLSVersion != policy.TLS12 {
		f.set("minimumTlsVersionAllowed", string(c.MinimumTLSVersion))
	}
	f.set("certificateAuthorities", c.CertificateAuthorities)
	if own := c.ClientCertificate; own != nil {
		f.set("clientCertificate.certificate", own.Certificate)
	}
	if o := c.OAuth2; o != nil {
		f.set("oauth2.tokenUrl", o.TokenURL)
		f.set("oauth2.clientId", o.ClientID)
		f.set("oauth2.scope", o.Scope)
	}
}

// connection are the settings of that name: nothing is kept where the certificate, or the token URL, is taken out.
func (f *form) connection(settings map[string]any) {
	settings["minimumTlsVersionAllowed"] = f.orNull("minimumTlsVersionAllowed")
	settings["certificateAuthorities"], settings["clientCertificate"], settings["oauth2"] =
		f.pem("certificateAuthorities"), nil, nil
	if f.has("clientCertificate.certificate") || f.has("clientCertificate.privateKey") {
		own := map[string]any{"certificate": display.OrEmpty(f.pem("clientCertificate.certificate"))}
		if key := f.pem("clientCertificate.privateKey"); key != nil {
			own["privateKey"] = key
		}
		settings["clientCertificate"] = own
	}
	if f.has("oauth2.tokenUrl") || f.has("oauth2.clientId") || f.has("oauth2.clientSecret") {
		o := map[string]any{
			"tokenUrl": f.get("oauth2.tokenUrl"), "clientId": f.get("oauth2.clientId"), "scope": f.orNull("oauth2.scope"),
		}
		if f.has("oauth2.clientSecret") {
			o["clientSecret"] = f.values.Get("oauth2.clientSecret")
		}
		settings["oauth2"] = o
	}
}

// pem is as it was typed, its last line's end too.
func (f *form) pem(name string) *string {
	if !f.has(name) {
		return nil
	}
	return new(f.values.Get(name))
}

func (f *form) fillFilter(filter *filter.Filter) {
	f.set("filter.includedEventTypes", linesOf(filter.IncludedEventTypes))
	f.set("filter.subjectBeginsWith", filter.SubjectBeginsWith)
	f.set("filter.subjectEndsWith", filter.SubjectEndsWith)
	f.set("filter.isSubjectCaseSensitive", checkText(filter.IsSubjectCaseSensitive))
	f.set("filter.enableAdvancedFilteringOnArrays", checkText(filter.EnableAdvancedFilteringOnArrays))
	for i, a := range filter.AdvancedFilters {
		at := fmt.Sprintf("%s[%d].", filterList, i)
		f.set(at+"operatorType", a.OperatorType)
		f.set(at+"key", a.Key)
		f.set(at+"value", operandLines(&a))
	}
}

// operandLines writes what an operator compares with, one a line.
func operandLines(a *filter.AdvancedFilter) string {
	values := a.Values
	if len(a.Value) > 0 {
		values = append([]json.RawMessage{a.Value}, values...)
	}
	lines := make([]string, len(values))
	for i, value := range values {
		var text string
		if json.Unmarshal(value, &text) == nil && value[0] == '"' {
			lines[i] = lineOf(text)
			continue
		}
		lines[i] = strings.Trim(string(value), "[]")
	}
	return strings.Join(lines, "\n")
}

func (f *form) fillHeaders(list []policy.DeliveryAttribute) {
	for i, a := range list {
		at := fmt.Sprintf("%s[%d].", headerList, i)
		f.set(at+"name", a.Name)
		switch {
		case a.Type == policy.AttributeDynamic:
			f.set(at+"type", headerDynamic)
			f.set(at+"properties", a.SourceField)
		case a.IsSecret:
			f.set(at+"type", headerSecret)
		default:
			f.set(at+"type", headerStatic)
			f.set(at+"properties", display.OrEmpty(a.Value))
		}
	}
}

// subscriptionSettings is what the form says, as the API takes it: every setting but the endpoint, null where a default
// is taken. was is what is stored: a time that was not touched keeps its fraction of a second.
func subscriptionSettings(f *form, was *catalog.SubscriptionSpec) map[string]any {
	settings := map[string]any{
		"endpointKind": f.orNull("endpointKind"), "eventDeliverySchema": f.orNull("eventDeliverySchema"),
		"endpointValidation": f.orNull("endpointValidation"),
		"retryPolicy": map[string]any{
			"policy": f.orNull("retryPolicy.policy"), "maxDeliveryAttempts": f.number("retryPolicy.maxDeliveryAttempts"),
			"eventTimeToLiveInMinutes": f.timeToLive(),
		},
		"filter": f.filter(), "deadLetterDestination": f.destination(), "deliveryAttributeMappings": f.headers(),
		"maxEventsPerBatch":             f.number("maxEventsPerBatch"),
		"preferredBatchSizeInKilobytes": f.number("preferredBatchSizeInKilobytes"),
		"maxConcurrentDeliveries":       f.number("maxConcurrentDeliveries"),
		"signing":                       map[string]any{"enabled": f.has("signing.enabled")},
		"behavior":                      f.orNull("behavior"), "honorRetryAfter": f.perhaps("honorRetryAfter"),
		"probationAction":      f.orNull("probationAction"),
		"retryTransportErrors": f.perhaps("retryTransportErrors"), "labels": f.lines("labels"),
		"expirationTimeUtc": f.expiration(was),
	}
	f.connection(settings)
	return settings
}

// timeToLive adds days, hours and minutes up; null where none is stated.
func (f *form) timeToLive() json.RawMessage {
	total, stated := 0, false
	for name, minutes := range map[string]int{"days": minutesADay, "hours": minutesAnHour, "minutes": 1} {
		text := f.get("retryPolicy.eventTimeToLiveInMinutes." + name)
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n > 1e6 || n < -1e6 {
			return textJSON(text)
		}
		total, stated = total+n*minutes, true
	}
	if !stated {
		return json.RawMessage("null")
	}
	return json.RawMessage(strconv.Itoa(total))
}

func (f *form) filter() map[string]any {
	rows := []map[string]any{}
	for i := range f.rows(filterList) {
		at := fmt.Sprintf("%s[%d].", filterList, i)
		rows = append(rows, f.advancedFilter(at))
	}
	return map[string]any{
		"includedEventTypes":     f.lines("filter.includedEventTypes"),
		"subjectBeginsWith":      f.values.Get("filter.subjectBeginsWith"),
		"subjectEndsWith":        f.values.Get("filter.subjectEndsWith"),
		"isSubjectCaseSensitive": f.has("filter.isSubjectCaseSensitive"), "advancedFilters": rows,
		"enableAdvancedFilteringOnArrays": f.has("filter.enableAdvancedFilteringOnArrays"),
	}
}

// advancedFilter is one row. How its lines are read depends on the operator: numbers keep every digit that was typed.
func (f *form) advancedFilter(at string) map[string]any {
	operator := f.get(at + "operatorType")
	row := map[string]any{"operatorType": operator, "key": f.get(at + "key")}
	lines := f.lines(at + "value")
	switch {
	case strings.HasPrefix(operator, "Is"):
		if len(lines) > 0 {
			row["values"] = lines
		}
	case strings.HasPrefix(operator, "String"):
		row["values"] = lines
	case strings.HasPrefix(operator, "Bool"), strings.HasPrefix(operator, "NumberLess"),
		strings.HasPrefix(operator, "NumberGreater"):
		if len(lines) > 0 {
			row["value"] = operandOf(strings.Join(lines, "\n"))
		}
	default:
		values := []json.RawMessage{}
		for _, line := range lines {
			values = append(values, operandOf(line))
		}
		row["values"] = values
	}
	return row
}

// operandOf reads a number, true or false, or the two ends of a range.
func operandOf(line string) json.RawMessage {
	if line == "true" || line == "false" {
		return json.RawMessage(line)
	}
	if pair := "[" + strings.Trim(line, "[] ") + "]"; strings.Contains(line, ",") && json.Valid([]byte(pair)) {
		return json.RawMessage(pair)
	}
	return numberOf(line)
}

func (f *form) destination() any {
	const at = "deadLetterDestination."
	kind := f.get(at + "endpointType")
	if kind == "" {
		return nil
	}
	destination := map[string]any{"endpointType": kind, "properties": nil}
	if catalog.DeadLetterType(kind).Outside() {
		properties := map[string]any{}
		for _, name := range []string{"url", "prefix", "resourceId", "blobContainerName"} {
			properties[name] = f.orNull(at + "properties." + name)
		}
		destination["properties"] = properties
	}
	return destination
}

// headers are the custom headers. A secret of which nothing was typed keeps what is stored under its name.
func (f *form) headers() []map[string]any {
	list := []map[string]any{}
	for i := range f.rows(headerList) {
		at := fmt.Sprintf("%s[%d].", headerList, i)
		value := f.get(at + "properties")
		header := map[string]any{"name": f.get(at + "name"), "type": "Static"}
		switch f.get(at + "type") {
		case headerDynamic:
			header["type"], header["properties"] = "Dynamic", map[string]any{"sourceField": value}
		case headerSecret:
			header["properties"] = map[string]any{"value": f.orNull(at + "properties"), "isSecret": true}
		default:
			header["properties"] = map[string]any{"value": value, "isSecret": false}
		}
		list = append(list, header)
	}
	return list
}

func (f *form) expiration(was *catalog.SubscriptionSpec) any {
	text := f.get("expirationTimeUtc")
	if text == "" {
		return nil
	}
	if was != nil && was.ExpirationTimeUTC != nil && text == secondsText(*was.ExpirationTimeUTC) {
		return was.ExpirationTimeUTC.UTC().Format(time.RFC3339Nano)
	}
	for _, shape := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05"} {
		if at, err := time.Parse(shape, text); err == nil {
			return at.Format(time.RFC3339)
		}
	}
	return text
}

// dropEmptyRows takes out the rows in which nothing was typed, so that the API's numbers are those of the rows that are
// shown.
func (f *form) dropEmptyRows(list string, fields ...string) {
	for i := f.rows(list) - 1; i >= 0; i-- {
		empty := func(field string) bool { return !f.has(fmt.Sprintf("%s[%d].%s", list, i, field)) }
		if !slices.ContainsFunc(fields, func(field string) bool { return !empty(field) }) {
			f.removeRow(list, i)
		}
	}
}

func secondsText(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05") }

func wholeText(n *int) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(*n)
}

func checkText(is bool) string {
	if is {
		return "true"
	}
	return ""
}

func perhapsText(is *bool) string {
	if is == nil {
		return ""
	}
	return strconv.FormatBool(*is)
}
