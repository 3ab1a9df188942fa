package source

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
)

// frame is a function as it was called: by whom, and with what.
type frame struct {
	*function
	up *frame
	// in is the call that led here, in the body of up.
	in call
	// next is the call in this function that led on; zero in the last frame.
	next call
}

// within reports whether f is a call of the function g or was reached by one.
func (f *frame) within(g *function) bool {
	return f != nil && (f.obj == g.obj || f.up.within(g))
}

// arg is what the frame was called with for one of its parameters, in the words of the frame above.
func (f *frame) arg(id *ast.Ident) (value ast.Expr, ok bool) {
	if f.up == nil || f.in.expr == nil || !f.param(id) || len(f.values(f.pkg.info.ObjectOf(id))) > 0 {
		return nil, false
	}
	sig := f.obj.Type().(*types.Signature)
	for i := range sig.Params().Len() {
		if sig.Params().At(i) != f.pkg.info.ObjectOf(id) {
			continue
		}
		if sig.Variadic() && i == sig.Params().Len()-1 || i >= len(f.in.expr.Args) {
			return nil, false
		}
		return f.in.expr.Args[i], true
	}
	return nil, false
}

// meaning puts an expression of f into the words of the frame top, or of the outermost one if top is
// nil: a parameter becomes what the caller gave for it, as does a field of a parameter. Where the
// caller's words cannot be told, f's own are left.
func (f *frame) meaning(e ast.Expr, top *frame) string {
	e = f.plain(e)
	if f != top {
		switch x := e.(type) {
		case *ast.Ident:
			if arg, ok := f.arg(x); ok {
				return f.up.meaning(arg, top)
			}
		case *ast.SelectorExpr:
			if value, zero, at := f.field(x, top); value != nil {
				return at.meaning(value, top)
			} else if zero != "" {
				return zero
			}
		}
	}
	return types.ExprString(e)
}

// field is what the caller gave for a field of a parameter: an expression of the frame at, or the
// zero value where the caller's literal leaves the field out. It looks no further up than top, and
// gives nothing when the field is set on its own on the way.
func (f *frame) field(sel *ast.SelectorExpr, top *frame) (value ast.Expr, zero string, at *frame) {
	name := sel.Sel.Name
	seen := make(map[types.Object]bool)
	e := ast.Unparen(sel.X)
	for at = f; ; {
		if u, ok := e.(*ast.UnaryExpr); ok && u.Op == token.AND {
			e = ast.Unparen(u.X)
		}
		id, ok := e.(*ast.Ident)
		if !ok {
			break
		}
		arg, isArg := at.arg(id)
		switch {
		case at.sets(id, name) || isArg && at == top:
			return nil, "", nil
		case isArg:
			e, at = ast.Unparen(arg), at.up
		default:
			obj := at.pkg.info.ObjectOf(id)
			values := at.values(obj)
			if len(values) != 1 || seen[obj] {
				return nil, "", nil
			}
			seen[obj] = true
			e = ast.Unparen(values[0])
		}
	}
	lit, ok := e.(*ast.CompositeLit)
	if !ok || at == f {
		return nil, "", nil
	}
	fields, _ := at.typeOf(lit).Underlying().(*types.Struct)
	for i, e := range lit.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			if k, ok := kv.Key.(*ast.Ident); ok && k.Name == name {
				return kv.Value, "", at
			}
		} else if fields != nil && i < fields.NumFields() && fields.Field(i).Name() == name {
			return e, "", at
		}
	}
	return nil, zeroValue(f.typeOf(sel)), at
}

// sets reports whether f assigns to a field of a variable.
func (f *function) sets(id *ast.Ident, field string) bool {
	obj, found := f.pkg.info.ObjectOf(id), false
	ast.Inspect(f.decl.Body, func(n ast.Node) bool {
		if a, ok := n.(*ast.AssignStmt); ok {
			for _, l := range a.Lhs {
				sel, ok := l.(*ast.SelectorExpr)
				if !ok || sel.Sel.Name != field {
					continue
				}
				of, ok := ast.Unparen(sel.X).(*ast.Ident)
				found = found || ok && f.pkg.info.ObjectOf(of) == obj
			}
		}
		return !found
	})
	return found
}

// zeroValue writes the zero value of a type.
func zeroValue(t types.Type) string {
	if b, ok := t.Underlying().(*types.Basic); ok {
		switch {
		case b.Info()&types.IsBoolean != 0:
			return "false"
		case b.Info()&types.IsNumeric != 0:
			return "0"
		case b.Info()&types.IsString != 0:
			return `""`
		}
	}
	return "nothing"
}

// ask notes what an expression of the frame means one frame up, for each frame on the way.
func (f *frame) ask(asked map[*frame][]string, e ast.Expr) {
	e = f.plain(e)
	switch x := e.(type) {
	case *ast.UnaryExpr:
		f.ask(asked, x.X)
	case *ast.BinaryExpr:
		f.ask(asked, x.X)
		f.ask(asked, x.Y)
	case *ast.Ident:
		if arg, ok := f.arg(x); ok {
			f.up.note(asked, x.Name, f.up.meaning(arg, f.up))
			f.up.ask(asked, arg)
		}
	case *ast.SelectorExpr:
		field, zero, at := f.field(x, nil)
		switch {
		case field != nil:
			at.note(asked, x.Sel.Name, at.meaning(field, at))
			at.ask(asked, field)
		case zero != "":
			at.note(asked, x.Sel.Name, zero)
		}
	}
}

// note adds an argument to the ones that the call of a frame gives.
func (f *frame) note(asked map[*frame][]string, name, value string) {
	if with := name + " = " + value; f.next.callee != nil && !slices.Contains(asked[f], with) {
		asked[f] = append(asked[f], with)
	}
}

// when puts conditions into words, and says whether the caller meets all of them.
func (f *frame) when(conds []cond, asked map[*frame][]string) (words string, all Truth) {
	all = Yes
	for _, c := range conds {
		f.ask(asked, c.expr)
		e := f.plain(c.expr)
		word := types.ExprString(e)
		if sel, ok := e.(*ast.SelectorExpr); ok {
			word = sel.Sel.Name
		}
		is := map[string]Truth{"true": Yes, "false": No}[f.meaning(e, nil)]
		if c.negated {
			word = "not " + word
			is = map[Truth]Truth{Yes: No, No: Yes}[is]
		}
		if words != "" {
			word = " and " + word
		}
		words += word
		if all != No && is != Yes {
			all = is
		}
	}
	return words, all
}
