package cli

import (
	"embed"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/alecthomas/kong"

	"postrider/internal/terminal"
)

// samples are events of Azure services, one in each file, which has the name of their type. Their values are made up.
//
// Source of the members: Microsoft, Azure Event Grid, event schemas of Azure services, 2024.
//
//go:embed samples/*.json
var samples embed.FS

// azureSample is the content of a file.
type azureSample struct {
	Source, Subject, DataVersion string
	Data                         json.RawMessage
}

// sampleFlag is --sample, alone or with a type.
type sampleFlag struct {
	on        bool
	eventType string // of an Azure service; "" = an order of a shop
}

// IsBool lets the flag be without a value.
func (sampleFlag) IsBool() bool { return true }

// Decode reads the flag. The next argument is its value if it is list, or the type of an Azure service.
func (s *sampleFlag) Decode(k *kong.DecodeContext) error {
	s.on = true
	next := k.Scan.Peek()
	text, isText := next.Value.(string)
	if next.Type != kong.FlagValueToken && (!isText || text != "list" && !strings.HasPrefix(text, "Microsoft.")) {
		return nil
	}
	k.Scan.Pop()
	names := sampleNames()
	for _, name := range names {
		if strings.EqualFold(name, text) {
			s.eventType = name
			return nil
		}
	}
	problem := "the samples of Azure services are"
	if text != "list" {
		problem = fmt.Sprintf("no sample of type %s; there are", terminal.Cell(text))
	}
	return fmt.Errorf("%s:\n  %s", problem, strings.Join(names, "\n  "))
}

func sampleNames() (names []string) {
	entries, _ := samples.ReadDir("samples") // it is embedded
	for _, entry := range entries {
		names = append(names, strings.TrimSuffix(entry.Name(), path.Ext(entry.Name())))
	}
	return names
}

// azureEvent creates an event as an Azure service publishes it.
func azureEvent(schema, eventType string) ([]byte, error) {
	text, err := samples.ReadFile("samples/" + eventType + ".json")
	if err != nil {
		return nil, err
	}
	var sample azureSample
	if err := json.Unmarshal(text, &sample); err != nil {
		return nil, fmt.Errorf("read the sample %s: %w", eventType, err)
	}
	if schema == "CustomEventSchema" {
		return nil, terminal.Usagef("--sample %s: the topic has a custom schema; use --sample without a type", eventType)
	}
	return newEvent(schema, eventType, sample.Subject, sample.Source, sample.Data)
}
