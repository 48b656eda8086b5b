package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
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
		files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil {
			return nil, fmt.Errorf("list the files of %s: %w", dir, err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			text, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments)
			if err != nil {
				return nil, fmt.Errorf("parse %s: %w", name, err)
			}
			c.add("postrider/"+dir+".", file)
		}
	}
	return c, nil
}

func (c *comments) add(prefix string, file *ast.File) {
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				continue
			}
			if pointer, is := d.Recv.List[0].Type.(*ast.StarExpr); is {
				if named, is := pointer.X.(*ast.Ident); is {
					c.texts[prefix+"(*"+named.Name+")."+d.Name.Name] = d.Doc.Text()
				}
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				c.addSpec(prefix, d, s)
			}
		}
	}
}

func (c *comments) addSpec(prefix string, of *ast.GenDecl, s ast.Spec) {
	switch s := s.(type) {
	case *ast.TypeSpec:
		c.texts[prefix+s.Name.Name] = cmp.Or(s.Doc.Text(), of.Doc.Text())
		structure, is := s.Type.(*ast.StructType)
		if !is {
			return
		}
		for _, field := range structure.Fields.List {
			names := field.Names
			if embedded, is := field.Type.(*ast.Ident); is && len(names) == 0 {
				names = []*ast.Ident{embedded}
			}
			for _, name := range names {
				c.texts[prefix+s.Name.Name+"."+name.Name] = field.Doc.Text()
			}
		}
	case *ast.ValueSpec:
		named, is := s.Type.(*ast.Ident)
		if of.Tok != token.CONST || !is || len(s.Values) == 0 {
			return
		}
		literal, is := s.Values[0].(*ast.BasicLit)
		if !is {
			return
		}
		kind := prefix + named.Name
		text := oneLine(cmp.Or(s.Doc.Text(), s.Comment.Text()))
		c.constants[kind] = append(c.constants[kind], constant{literal.Value, text})
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
