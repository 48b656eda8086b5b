package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"unicode"
	"unicode/utf8"
)

// comments are the doc comments of the packages of this repository, which describe the REST API. Keys are a type
// (import path.Name), a field (import path.Type.Field) or a method (import path.(*Type).Method).
type comments struct {
	texts     map[string]string
	constants map[string][]constant // by their type
}

// constant is a constant with its value in Go's syntax.
type constant struct{ value, text string }

// readComments reads the source of the packages in the directories below root.
func readComments(root string, dirs ...string) (*comments, error) {
	c := &comments{map[string]string{}, map[string][]constant{}}
	for _, dir := range dirs {
		names, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil {
			return nil, fmt.Errorf("list the files of %s: %w", dir, err)
		}
		files, sources := []*ast.File{}, token.NewFileSet()
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(sources, name, nil, parser.ParseComments)
			if err != nil {
				return nil, fmt.Errorf("parse %s: %w", name, err)
			}
			files = append(files, file)
		}
		read, err := doc.NewFromFiles(sources, files, "postrider/"+dir, doc.AllDecls)
		if err != nil {
			return nil, fmt.Errorf("read the comments in %s: %w", dir, err)
		}
		for _, t := range read.Types {
			c.add(read.ImportPath+".", t)
		}
	}
	return c, nil
}

func (c *comments) add(prefix string, t *doc.Type) {
	c.texts[prefix+t.Name] = t.Doc
	for _, method := range t.Methods {
		c.texts[prefix+"("+method.Recv+")."+method.Name] = method.Doc
	}
	for _, group := range t.Consts {
		for _, s := range group.Decl.Specs {
			spec := s.(*ast.ValueSpec)
			for _, value := range spec.Values { // none with iota
				if literal, is := value.(*ast.BasicLit); is {
					text := oneLine(cmp.Or(spec.Doc.Text(), spec.Comment.Text()))
					c.constants[prefix+t.Name] = append(c.constants[prefix+t.Name], constant{literal.Value, text})
				}
			}
		}
	}
	structure, is := t.Decl.Specs[0].(*ast.TypeSpec).Type.(*ast.StructType)
	if !is {
		return
	}
	for _, field := range structure.Fields.List {
		names := field.Names
		if embedded, is := field.Type.(*ast.Ident); is && len(names) == 0 {
			names = []*ast.Ident{embedded}
		}
		for _, name := range names {
			c.texts[prefix+t.Name+"."+name.Name] = field.Doc.Text()
		}
	}
}

// ofType describes a type: the first paragraph of its comment, without the name and the verb before it.
func (c *comments) ofType(t reflect.Type) string {
	name, _, _ := strings.Cut(t.Name(), "[")
	text, _, _ := strings.Cut(c.texts[t.PkgPath()+"."+name], "\n\n")
	text = strings.TrimPrefix(text, name+" ")
	for _, verb := range []string{"is ", "are "} {
		text = strings.TrimPrefix(text, verb)
	}
	return sentence(oneLine(text))
}

// ofField is the first paragraph of the comment on a field of t, or of the struct in t that has it; "" for none.
func (c *comments) ofField(t reflect.Type, field reflect.StructField) string {
	for _, i := range field.Index[:len(field.Index)-1] {
		if t = t.Field(i).Type; t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
	}
	name, _, _ := strings.Cut(t.Name(), "[")
	text, _, _ := strings.Cut(c.texts[t.PkgPath()+"."+name+"."+field.Name], "\n\n")
	return oneLine(text)
}

// ofHandler is the comment on a method: its first sentence as an imperative, such as "List topics", and the rest.
func (c *comments) ofHandler(handler any) (summary, description string) {
	method := strings.TrimSuffix(runtime.FuncForPC(reflect.ValueOf(handler).Pointer()).Name(), "-fm")
	first, rest, _ := strings.Cut(c.texts[method], "\n\n")
	words := strings.Fields(first)
	if len(words) < 2 {
		return "", ""
	}
	words = words[1:] // without the name
	for i, word := range words {
		if i == 0 || words[i-1] == "or" {
			words[i] = imperative(word)
		}
	}
	return strings.TrimSuffix(sentence(strings.Join(words, " ")), "."), sentence(rest)
}

// imperative is the form of a verb without the s of the third person.
func imperative(verb string) string {
	if stem, is := strings.CutSuffix(verb, "ies"); is {
		return stem + "y"
	}
	for _, ending := range []string{"shes", "ches", "sses"} {
		if strings.HasSuffix(verb, ending) {
			return strings.TrimSuffix(verb, "es")
		}
	}
	return strings.TrimSuffix(verb, "s")
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// sentence is a text that begins with a capital letter.
func sentence(text string) string {
	text = strings.TrimSpace(text)
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[size:]
}
