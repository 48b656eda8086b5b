package spec

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"postrider/internal/destination"
)

// Kind is how a setting's value is written.
type Kind string

// The kinds of settings. The comment names the JSON type.
const (
	Text   Kind = "text"   // string
	URL    Kind = "url"    // string
	PEM    Kind = "pem"    // string of several lines
	Time   Kind = "time"   // string, RFC 3339
	Choice Kind = "choice" // one of the strings of Choices
	Whole  Kind = "whole"  // integer
	Number Kind = "number" // number
	Switch Kind = "switch" // boolean
	Lines  Kind = "lines"  // array of strings
	List   Kind = "list"   // array of numbers
	JSON   Kind = "json"   // object or array with a form of its own
)

// Setting describes one setting.
type Setting struct {
	// Name is the path of the setting in the JSON of the REST API, such as retryPolicy.maxDeliveryAttempts.
	Name string
	// Section groups settings on forms and in the reference.
	Section string
	// Label names the setting on forms, in three words or less.
	Label string
	// Help says what the setting does.
	Help string
	Kind Kind
	// Choices are the values of a Choice.
	Choices []string
	// Min and Max bound a number. Max bounds the bytes of a text, and the entries of Lines. 0 = no bound.
	Min, Max float64
	// Default is the value in words if the setting is absent or null; "" for settings that are required.
	Default string
	// Example is a value as it is typed.
	Example string
	// Flag is the name on the command line if it is not that of FlagName; "-" = it has no flag of its own.
	Flag string
	// Aliases are other names of the flag.
	Aliases []string
	// Azure reports whether the Azure CLI has the flag.
	Azure bool
	// Secret values are stored sealed and never shown again.
	Secret bool
	// Fixed settings cannot be changed once the object exists.
	Fixed bool
	// Of are the types of destinations that have the setting; nil = all.
	Of []destination.Type
	// Listed texts are shown in lists of the objects.
	Listed bool
}

// Text is Help, which begins with the types of destinations that have the setting if others do not.
func (s *Setting) Text() string {
	if s.Of == nil {
		return s.Help
	}
	if slices.Equal(s.Of, azure) {
		return "Of Azure's types: " + s.Help
	}
	names := make([]string, len(s.Of))
	for i, t := range s.Of {
		names[i] = string(t)
	}
	return "Of " + strings.Join(names, ", ") + ": " + s.Help
}

// FlagName is the name of the setting's command-line flag; "" if it has none. It is the last part of the setting's
// name in lower case: max-delivery-attempts.
func (s *Setting) FlagName() string {
	switch s.Flag {
	case "":
		var b strings.Builder
		for _, r := range s.Name[strings.LastIndexByte(s.Name, '.')+1:] {
			if unicode.IsUpper(r) {
				b.WriteByte('-')
			}
			b.WriteRune(unicode.ToLower(r))
		}
		return b.String()
	case "-":
		return ""
	}
	return s.Flag
}

// Limits are the bounds of a number in words, such as "1 to 230"; "" if it has none.
func (s *Setting) Limits() string {
	number := func(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }
	if s.Kind != Whole && s.Kind != Number && s.Kind != List || s.Max == 0 {
		return ""
	}
	if s.Max == math.MaxInt32 { // what PostgreSQL's integer holds
		return "at least " + number(s.Min)
	}
	return number(s.Min) + " to " + number(s.Max)
}

// Find is the setting of a table with this name; nil if there is none.
func Find(table []Setting, name string) *Setting {
	for i := range table {
		if table[i].Name == name {
			return &table[i]
		}
	}
	return nil
}
