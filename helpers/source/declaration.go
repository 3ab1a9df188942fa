package source

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"regexp"
	"strings"
)

// Declaration is a function, a method, a type, one of its fields or methods, a variable or a constant.
type Declaration struct {
	Location
	// Syntax is the declaration, with others where it stands in one group with them.
	Syntax ast.Decl

	fset *token.FileSet
	src  string
}

// parse adds what a file declares; name is its path below the root of the module.
func (p *parsed) parse(name, src string) error {
	f, err := parser.ParseFile(p.fset, name, src, parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("parsing the package: %w", err)
	}
	p.files = append(p.files, file{name, src})
	for _, d := range f.Decls {
		add := func(owner string, names ...*ast.Ident) {
			for _, id := range names {
				line := p.fset.Position(id.Pos()).Line
				at := Location{Module: p.module, Version: p.version, File: name, Func: owner + id.Name, Line: line}
				p.declares = append(p.declares, Declaration{Location: at, Syntax: d, fset: p.fset, src: src})
			}
		}
		typ := ""
		ast.Inspect(d, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				add(receiver(n), n.Name)
				return false
			case *ast.ValueSpec:
				add("", n.Names...)
			case *ast.TypeSpec:
				add("", n.Name)
				typ = n.Name.Name + "."
			case *ast.Field:
				add(typ, n.Names...)
			case *ast.FuncType, *ast.FuncLit: // no reference names what stands in there
				return false
			}
			return true
		})
	}
	return nil
}

// receiver is how the name of a method begins, such as "(*store)."; empty for a function.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	typ, _, _ := strings.Cut(strings.Trim(types.ExprString(d.Recv.List[0].Type), "()"), "[")
	if strings.HasPrefix(typ, "*") {
		typ = "(" + typ + ")"
	}
	return typ + "."
}

var decoration = regexp.MustCompile(`[()*]|\[.*\]`)

// plain is the name of a declaration without what does not tell it from others: parentheses, stars
// and type parameters.
func plain(name string) string { return decoration.ReplaceAllString(name, "") }

// last is what stands behind the dot of a name.
func last(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }

// Called is the name that an expression calls, of a function or of a method of anything; empty if it is no call.
func Called(e ast.Expr) string {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return ""
	}
	return last(types.ExprString(call.Fun))
}

// Call is the one call of a name in d, which has that many arguments.
func (d Declaration) Call(name string, arguments int) (*ast.CallExpr, error) {
	var calls []*ast.CallExpr
	for n := range ast.Preorder(d.Syntax) {
		if call, ok := n.(*ast.CallExpr); ok && Called(call) == name {
			calls = append(calls, call)
		}
	}
	if len(calls) != 1 || len(calls[0].Args) != arguments {
		return nil, fmt.Errorf("%s does not call %s once, with as many arguments as it did (%d)", d, name, arguments)
	}
	return calls[0], nil
}

// Around is the innermost node of type N in d that holds n, if there is one.
func Around[N ast.Node](d Declaration, n ast.Node) (around N, ok bool) {
	for m := range ast.Preorder(d.Syntax) {
		if m, is := m.(N); is && m.Pos() <= n.Pos() && n.End() <= m.End() {
			around, ok = m, true
		}
	}
	return around, ok
}

// Text is a node of d as the source has it.
func (d Declaration) Text(n ast.Node) string {
	return d.src[d.fset.Position(n.Pos()).Offset:d.fset.Position(n.End()).Offset]
}

// Quote is the lines of some nodes of d, in the order of the source, under a line that says where they
// stand. Where more than one line between them is left out, there is "…".
func (d Declaration) Quote(nodes ...ast.Node) string {
	all := strings.Split(d.src, "\n")
	var lines []string
	last := 0
	for _, n := range nodes {
		from, to := d.fset.Position(n.Pos()).Line, d.fset.Position(n.End()).Line
		switch gap := from - last - 1; {
		case last == 0:
			d.Line = from
		case gap == 1:
			from--
		case gap > 1:
			lines = append(lines, indentation(all[from-1])+"…")
		}
		lines = append(lines, all[from-1:to]...)
		last = to
	}
	quote := d.Module + " " + d.Version + " " + d.Position()
	margin := indentation(lines[0])
	for _, line := range lines {
		line = strings.ReplaceAll(strings.TrimPrefix(line, margin), "\t", "    ")
		quote += strings.TrimRight("\n    "+line, " ")
	}
	return quote
}

// indentation is the tabs that a line begins with.
func indentation(line string) string { return line[:len(line)-len(strings.TrimLeft(line, "\t"))] }
