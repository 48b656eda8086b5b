package management

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/alecthomas/kong"

	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
)

// SettingFlags are the settings of an event subscription. Those that the Azure CLI has are called and written as there,
// but for lists: there values are separated by spaces, here by commas, or the flag is repeated. Source: Microsoft,
// Azure CLI reference, az eventgrid event-subscription create and update, 2026-05.
type SettingFlags struct {
	Endpoint            string   `help:"URL that events are delivered to." placeholder:"URL"`
	EndpointType        string   `help:"webhook: the only type there is here." placeholder:"TYPE"`
	EventDeliverySchema string   `help:"EventGridSchema, CloudEventSchemaV1_0 or CustomInputSchema, in any case." placeholder:"SCHEMA"`
	IncludedEventTypes  []string `help:"Only events of these types." placeholder:"TYPE"`
	SubjectBeginsWith   *string  `help:"Only events whose subject begins so." placeholder:"TEXT"`
	SubjectEndsWith     *string  `help:"Only events whose subject ends so." placeholder:"TEXT"`
	SubjectCase         azBool   `name:"subject-case-sensitive" help:"Does the case of a subject matter?" placeholder:"true|false"`
	AdvancedFilter      []string `sep:"none" help:"One more condition: key, operator and values in one argument, such as 'data.total NumberGreaterThan 100'. Quote a value that has spaces." placeholder:"'KEY OPERATOR VALUE …'"`
	FilteringOnArrays   azBool   `name:"enable-advanced-filtering-on-arrays" aliases:"enable-af-arr" help:"Do advanced filters look into arrays?" placeholder:"true|false"`
	MaxDeliveryAttempts *int     `help:"Attempts after which an event is given up." placeholder:"N"`
	EventTTL            *int     `name:"event-ttl" help:"Minutes after which an event is given up." placeholder:"MINUTES"`
	MaxEventsPerBatch   *int     `help:"The most events one request carries." placeholder:"N"`
	PreferredBatchSize  *int     `name:"preferred-batch-size-in-kilobytes" aliases:"pref-batch-size-kb" help:"How large the body of a batch should be." placeholder:"KB"`
	DeadletterEndpoint  string   `name:"deadletter-endpoint" help:"Where events go that are given up: rows, none, a location that serve allows (file://, s3://, azblob://), or the resource id of a storage container." placeholder:"WHERE"`
	ExpirationDate      string   `help:"When it is deleted: a date, or a time such as 2030-01-31T12:00:00Z." placeholder:"TIME"`
	Labels              []string `help:"Free texts." placeholder:"LABEL"`
	AttributeMapping    []string `name:"delivery-attribute-mapping" sep:"none" help:"A header of each delivery, in one argument: 'NAME static VALUE [true]', true for a secret, or 'NAME dynamic PATH'." placeholder:"'NAME TYPE …'"`

	EndpointKind            string `group:"Beyond the Azure CLI:" help:"Column of the retry policy's status-code table: webhook or azure-resource." placeholder:"KIND"`
	Policy                  string `group:"Beyond the Azure CLI:" help:"Retry policy." placeholder:"NAME"`
	Behavior                string `group:"Beyond the Azure CLI:" help:"safe, or documented: as Event Grid's pages have it." placeholder:"NAME"`
	MaxConcurrentDeliveries *int   `group:"Beyond the Azure CLI:" help:"The most requests in flight at a time." placeholder:"N"`
	HonorRetryAfter         azBool `group:"Beyond the Azure CLI:" help:"Does Retry-After put off the next attempt?" placeholder:"true|false"`
	ProbationAction         string `group:"Beyond the Azure CLI:" help:"hold or documented." placeholder:"NAME"`
	RetryTransportErrors    azBool `group:"Beyond the Azure CLI:" help:"Is another attempt made where there was no answer?" placeholder:"true|false"`
	Signing                 azBool `group:"Beyond the Azure CLI:" help:"Are deliveries signed?" placeholder:"true|false"`
	EndpointValidation      string `group:"Beyond the Azure CLI:" help:"required, or skip: you vouch for the endpoint." placeholder:"HOW"`
	connectionFlags
}

// azBool is true, false or not said. The Azure CLI takes the flag alone for true, too.
type azBool struct{ value *bool }

// Decode implements kong.MapperValue: the word after the flag is its value where it is one.
func (b *azBool) Decode(ctx *kong.DecodeContext) error {
	yes := true
	if token := ctx.Scan.Peek(); token.Type == kong.FlagValueToken || token.IsValue() {
		said, err := strconv.ParseBool(strings.ToLower(fmt.Sprint(token.Value)))
		switch {
		case err == nil:
			ctx.Scan.Pop()
			yes = said
		case token.Type == kong.FlagValueToken:
			return errors.New("must be true or false")
		}
	}
	b.value = &yes
	return nil
}

// Settings are the API's for the flags that were said; no other member is in them.
func (f *SettingFlags) Settings() (rest.Object, error) {
	if f.EndpointType != "" && !strings.EqualFold(f.EndpointType, "webhook") {
		return nil, terminal.Usagef("--endpoint-type %s: postrider delivers to webhook endpoints only", f.EndpointType)
	}
	s := rest.Object{}
	rest.SetText(s, "endpointUrl", f.Endpoint)
	rest.SetText(s, "endpointKind", f.EndpointKind)
	rest.SetText(s, "eventDeliverySchema",
		namedLike(f.EventDeliverySchema, "EventGridSchema", "CloudEventSchemaV1_0", "CustomInputSchema"))
	rest.SetText(s, "behavior", f.Behavior)
	rest.SetText(s, "probationAction", f.ProbationAction)
	rest.SetText(s, "endpointValidation", f.EndpointValidation)
	setGiven(s, "maxEventsPerBatch", f.MaxEventsPerBatch)
	setGiven(s, "preferredBatchSizeInKilobytes", f.PreferredBatchSize)
	setGiven(s, "maxConcurrentDeliveries", f.MaxConcurrentDeliveries)
	setGiven(s, "honorRetryAfter", f.HonorRetryAfter.value)
	setGiven(s, "retryTransportErrors", f.RetryTransportErrors.value)
	if f.Labels != nil {
		s["labels"] = f.Labels
	}
	if f.Signing.value != nil {
		s["signing"] = rest.Object{"enabled": *f.Signing.value}
	}
	setObject(s, "retryPolicy", f.retryPolicy())
	if err := f.filter(s); err != nil {
		return nil, err
	}
	if f.DeadletterEndpoint != "" {
		s["deadLetterDestination"] = deadLettersTo(f.DeadletterEndpoint)
	}
	if err := f.expiration(s); err != nil {
		return nil, err
	}
	if err := f.connection(s); err != nil {
		return nil, err
	}
	return s, f.attributes(s)
}

func setGiven[T any](settings rest.Object, name string, value *T) {
	if value != nil {
		settings[name] = *value
	}
}

func setObject(settings rest.Object, name string, value rest.Object) {
	if len(value) > 0 {
		settings[name] = value
	}
}

func (f *SettingFlags) retryPolicy() rest.Object {
	p := rest.Object{}
	rest.SetText(p, "policy", f.Policy)
	setGiven(p, "maxDeliveryAttempts", f.MaxDeliveryAttempts)
	setGiven(p, "eventTimeToLiveInMinutes", f.EventTTL)
	return p
}

func (f *SettingFlags) filter(s rest.Object) error {
	filter := rest.Object{}
	if f.IncludedEventTypes != nil {
		filter["includedEventTypes"] = f.IncludedEventTypes
	}
	setGiven(filter, "subjectBeginsWith", f.SubjectBeginsWith)
	setGiven(filter, "subjectEndsWith", f.SubjectEndsWith)
	setGiven(filter, "isSubjectCaseSensitive", f.SubjectCase.value)
	setGiven(filter, "enableAdvancedFilteringOnArrays", f.FilteringOnArrays.value)
	for _, text := range f.AdvancedFilter {
		clause, err := advancedFilter(text)
		if err != nil {
			return terminal.Usagef("--advanced-filter %q: %v", text, err)
		}
		clauses, _ := filter["advancedFilters"].([]rest.Object)
		filter["advancedFilters"] = append(clauses, clause)
	}
	setObject(s, "filter", filter)
	return nil
}

// operators are those of docs/filters.md, by what they compare with.
var (
	manyOperators = []string{
		"NumberIn", "NumberNotIn", "NumberInRange", "NumberNotInRange", "StringContains", "StringNotContains",
		"StringBeginsWith", "StringNotBeginsWith",
		"StringEndsWith", "StringNotEndsWith", "StringIn", "StringNotIn",
	}
	oneOperators = []string{
		"NumberLessThan", "NumberLessThanOrEquals", "NumberGreaterThan", "NumberGreaterThanOrEquals", "BoolEquals",
	}
	noOperators = []string{"IsNullOrUndefined", "IsNotNull"}
)

// advancedFilter reads "KEY OPERATOR VALUE …".
func advancedFilter(text string) (rest.Object, error) {
	parts, err := splitQuoted(text)
	if err != nil {
		return nil, err
	}
	if len(parts) < 2 {
		return nil, errors.New("must be a key, an operator and its values, such as 'data.total NumberGreaterThan 100'")
	}
	operator := namedLike(parts[1], slices.Concat(manyOperators, oneOperators, noOperators)...)
	clause, given := rest.Object{"key": parts[0], "operatorType": operator}, parts[2:]
	switch {
	case slices.Contains(noOperators, operator):
		if len(given) > 0 {
			return nil, fmt.Errorf("%s takes no value", operator)
		}
		return clause, nil
	case slices.Contains(oneOperators, operator):
		if len(given) != 1 {
			return nil, fmt.Errorf("%s takes one value, not %d", operator, len(given))
		}
		clause["value"], err = filterValue(operator, given[0])
		return clause, err
	case slices.Contains(manyOperators, operator):
		clause["values"], err = filterValues(operator, given)
		return clause, err
	}
	return nil, fmt.Errorf("there is no operator %s: they are %s", operator,
		strings.Join(slices.Concat(manyOperators, oneOperators, noOperators), ", "))
}

func filterValues(operator string, given []string) ([]any, error) {
	if len(given) == 0 {
		return nil, fmt.Errorf("%s takes at least one value", operator)
	}
	values := make([]any, len(given))
	for i, text := range given {
		var err error
		if values[i], err = filterValue(operator, text); err != nil {
			return nil, err
		}
	}
	return values, nil
}

func filterValue(operator, text string) (any, error) {
	switch {
	case strings.HasPrefix(operator, "String"):
		return text, nil
	case operator == "BoolEquals":
		yes, err := strconv.ParseBool(strings.ToLower(text))
		if err != nil {
			return nil, fmt.Errorf("%s takes true or false, not %q", operator, text)
		}
		return yes, nil
	case strings.HasSuffix(operator, "InRange"):
		low, high, _ := strings.Cut(text, ",")
		from, err1 := jsonNumber(low)
		to, err2 := jsonNumber(high)
		if err1 != nil || err2 != nil {
			return nil, fmt.Errorf("%s takes ranges such as 1,10, not %q", operator, text)
		}
		return []json.Number{from, to}, nil
	}
	n, err := jsonNumber(text)
	if err != nil {
		return nil, fmt.Errorf("%s takes numbers, not %q", operator, text)
	}
	return n, nil
}

// errNoNumber is for what looks like a number and is none in JSON, such as 007.
var errNoNumber = errors.New("no number")

// jsonNumber is text as a number, with all its digits.
func jsonNumber(text string) (json.Number, error) {
	var n json.Number
	if strings.HasPrefix(text, `"`) || json.Unmarshal([]byte(text), &n) != nil || n == "" {
		return "", errNoNumber
	}
	return n, nil
}

// splitQuoted splits at spaces. What stands between two quotation marks, single or double, is one word.
func splitQuoted(text string) (words []string, err error) {
	var word strings.Builder
	inWord, quote := false, rune(0)
	for _, r := range text {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case (r == '"' || r == '\'') && !inWord:
			quote, inWord = r, true
		case unicode.IsSpace(r):
			if inWord {
				words = append(words, word.String())
			}
			word.Reset()
			inWord = false
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("a quotation mark %c is not closed", quote)
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}

// deadLettersTo is a destination by what names it: a word of ours, a URL, or a resource id as the Azure CLI takes it.
func deadLettersTo(where string) rest.Object {
	switch {
	case strings.EqualFold(where, "rows"):
		return rest.Object{"endpointType": "Rows"}
	case strings.EqualFold(where, "none"):
		return rest.Object{"endpointType": "None"}
	case strings.HasPrefix(where, "/"):
		return rest.Object{"endpointType": "StorageBlob", "properties": rest.Object{"resourceId": where}}
	}
	return rest.Object{"endpointType": "Blob", "properties": rest.Object{"url": where}}
}

// expiration takes a date as well, and means its beginning in UTC.
func (f *SettingFlags) expiration(s rest.Object) error {
	if f.ExpirationDate == "" {
		return nil
	}
	for _, layout := range []string{
		time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateTime, time.DateOnly,
	} {
		if at, err := time.Parse(layout, f.ExpirationDate); err == nil {
			s["expirationTimeUtc"] = at.UTC().Format(time.RFC3339)
			return nil
		}
	}
	return terminal.Usagef(
		"--expiration-date %q: must be a date such as 2030-01-31, or a time such as 2030-01-31T12:00:00Z", f.ExpirationDate)
}

func (f *SettingFlags) attributes(s rest.Object) error {
	var mappings []rest.Object
	for _, text := range f.AttributeMapping {
		parts, err := splitQuoted(text)
		if err != nil {
			return terminal.Usagef("--delivery-attribute-mapping: %v", err) // without the text, which may hold a secret
		}
		mapping, ok := attributeMapping(parts)
		if !ok {
			return terminal.Usagef("--delivery-attribute-mapping: must be 'NAME static VALUE', 'NAME static VALUE true' for a " +
				"secret, or 'NAME dynamic PATH'")
		}
		mappings = append(mappings, mapping)
	}
	if mappings != nil {
		s["deliveryAttributeMappings"] = mappings
	}
	return nil
}

func attributeMapping(parts []string) (rest.Object, bool) {
	if len(parts) < 3 || len(parts) > 4 {
		return nil, false
	}
	switch kind := strings.ToLower(parts[1]); {
	case kind == "dynamic" && len(parts) == 3:
		return rest.Object{"name": parts[0], "type": "Dynamic", "properties": rest.Object{"sourceField": parts[2]}}, true
	case kind == "static":
		secret := false
		if len(parts) == 4 {
			var err error
			if secret, err = strconv.ParseBool(strings.ToLower(parts[3])); err != nil {
				return nil, false
			}
		}
		return rest.Object{
			"name": parts[0], "type": "Static", "properties": rest.Object{"value": parts[2], "isSecret": secret},
		}, true
	}
	return nil, false
}
