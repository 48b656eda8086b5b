package operations

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"postrider/internal/event"
	"postrider/internal/operator"
	"postrider/server/api"
	v1 "postrider/server/v1"
)

const (
	// MaxImported is the maximum of dead letters in a request.
	MaxImported = 500
	// maxImportedFrom is the maximum length of a file's name in bytes: the name is indexed.
	maxImportedFrom = 1024
)

type importDeadLettersRequest struct {
	v1.TopicPath
	Body ImportSpec `extraBytes:"3145728"`
}

// ImportSpec are dead letters to import.
type ImportSpec struct {
	// The dead letters.
	DeadLetters []LetterSpec `json:"deadLetters" minItems:"1" maxItems:"500"`
	// true checks the dead letters and stores nothing.
	DryRun bool `json:"dryRun,omitempty" default:"false"`
}

// LetterSpec is a dead letter of a file.
type LetterSpec struct {
	// Name of the file, such as ORDERS/2026/11/22/9/GUID.json. With `index` it is imported once.
	ImportedFrom string `json:"importedFrom" minLength:"1" maxLength:"1024"`
	// Place of the dead letter in the file, from 0.
	Index int `json:"index,omitempty" minimum:"0" default:"0"`
	// Event subscription that gets the dead letter.
	Subscription string `json:"subscription" minLength:"1"`
	// The dead letter as Event Grid wrote it: an event with deadLetterReason or deadletterreason, or an object with event
	// and deadLetterProperties.
	DeadLetter json.RawMessage `json:"deadLetter" type:"object"`
}

// ImportedDeadLetters are the results of an import.
type ImportedDeadLetters struct {
	// Number of dead letters that are new.
	Imported int `json:"imported"`
	// Number of dead letters that were imported before.
	AlreadyImported int `json:"alreadyImported"`
	// The results, in the order of the request.
	Value []ImportedDeadLetter `json:"value"`
}

// ImportedDeadLetter is the result for a dead letter.
type ImportedDeadLetter struct {
	// Name of the file.
	ImportedFrom string `json:"importedFrom"`
	// Place of the dead letter in the file, from 0.
	Index int `json:"index"`
	// alreadyImported: this place of the file was imported before, or an event with this id and source for the event
	// subscription.
	Result string `json:"result" enum:"imported,alreadyImported"`
	// The dead letter; null in a dry run if it is new.
	DeadLetterID *uuid.UUID `json:"deadLetterId"`
}

// ImportDeadLetters imports dead letters of Azure Event Grid.
//
// Stores dead letters from Event Grid's files as dead letters of the topic. They can be searched, repaired and
// redelivered like others. Each is imported once; a repeated request changes nothing.
//
// The event keeps its bytes, without the properties of the dead letter; a missing `specversion` is added. On a topic
// with a custom schema the event is the object in `data`. Reason, attempts and times are those of the file.
// `deadLetteredAt` is the time of the import, from which retention counts.
//
// If a dead letter is invalid, its event subscription is missing, or its place of the file was imported with another
// event, the response is 400 with each mistake, and nothing is stored.
func (m *Handlers) ImportDeadLetters(ctx context.Context, r *importDeadLettersRequest) (*ImportedDeadLetters, error) {
	topic, err := m.Parts.Topic(ctx, r.Topic)
	if err != nil {
		return nil, err
	}
	var found problems
	letters := found.letters(v1.InputOf(topic), r.Body.DeadLetters)
	if err := found.Err(); err != nil {
		return nil, err
	}
	results, err := m.Parts.Operator.ImportDeadLetters(ctx, topic.Name, letters, r.Body.DryRun)
	if err != nil {
		return nil, err
	}
	done := &ImportedDeadLetters{Value: make([]ImportedDeadLetter, len(results))}
	for i, result := range results {
		l := &r.Body.DeadLetters[i]
		done.Value[i] = ImportedDeadLetter{
			ImportedFrom: l.ImportedFrom, Index: l.Index, Result: "imported", DeadLetterID: result.DeadLetterID,
		}
		switch result.Result {
		case operator.ImportDone:
			done.Imported++
		case operator.ImportBefore:
			done.Value[i].Result = "alreadyImported"
			done.AlreadyImported++
		case operator.ImportNotFound:
			found.Value(fmt.Sprintf("deadLetters[%d].subscription", i), "must be an event subscription of topic %q, not %q",
				topic.Name, api.Shorten(l.Subscription))
		default:
			found.Value(fmt.Sprintf("deadLetters[%d].index", i), "is a place of the file from which another event was imported")
		}
	}
	return done, found.Err()
}

// letters reads the dead letters of a request.
func (p *problems) letters(in event.Input, specs []LetterSpec) []*operator.ImportedLetter {
	if n := len(specs); n == 0 || n > MaxImported {
		p.Value("deadLetters", "must have between 1 and %d dead letters, not %d", MaxImported, n)
		return nil
	}
	type place struct {
		file  string
		index int
	}
	places := map[place]int{}
	letters := make([]*operator.ImportedLetter, len(specs))
	for i := range specs {
		l, target := &specs[i], fmt.Sprintf("deadLetters[%d]", i)
		first, twice := places[place{l.ImportedFrom, l.Index}]
		switch {
		case l.ImportedFrom == "" || len(l.ImportedFrom) > maxImportedFrom:
			p.Value(target+".importedFrom", "must be 1 to %d bytes long, is %d", maxImportedFrom, len(l.ImportedFrom))
		case l.Index < 0 || l.Index > maxIndex:
			p.Value(target+".index", "must be between 0 and %d, not %d", maxIndex, l.Index)
		case twice:
			p.Value(target+".index", "is the place of deadLetters[%d], in the same file", first)
		}
		places[place{l.ImportedFrom, l.Index}] = i
		if l.Subscription == "" {
			p.Value(target+".subscription", "is required")
		}
		read, err := in.ReadDeadLetter(l.DeadLetter)
		if wrong, ok := errors.AsType[*event.Error](err); ok {
			rejected := api.EventRejection(wrong, target+".deadLetter")
			p.Problems = append(p.Problems, rejected.Details...)
			continue
		}
		letters[i] = &operator.ImportedLetter{
			From: l.ImportedFrom, Index: l.Index, Subscription: l.Subscription, DeadLetter: read,
		}
	}
	return letters
}

// maxIndex is the largest place of a dead letter in a file.
const maxIndex = 1<<31 - 1
