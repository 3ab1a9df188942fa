package source

import (
	"context"
	"fmt"
	"strings"
)

// Chain is the way of a write from the function that begins it to the etcd transaction that it
// becomes, as the source of one version has it.
type Chain struct {
	// Steps are the functions on the way. The first is where it begins, the last builds the
	// transaction; they are the same one when the way is short.
	Steps []Step
	// If are the comparisons of the transaction, in order.
	If []Compare
	// Then and Else are the operations of its two branches, in order.
	Then, Else []Op
	// Retry is what is done after the comparison failed; zero when that answer is not looked into.
	Retry Retry
}

// Step is one function on the way.
type Step struct {
	Location
	// Calls is the function that the step calls to get to the next one, as the caller sees it, such
	// as "Interface.OptimisticPut". It is empty in the last step.
	Calls string
	// CallLine is the line of that call.
	CallLine int
	// With are the arguments of the call that the transaction depends on, such as
	// "expectedRevision = origState.rev".
	With []string
}

// Compare is one comparison of a transaction. Key and Operand are in the words of the last step.
type Compare struct {
	// At is the function that builds the comparison, with the line of the call of Compare.
	At Location
	// Field is what is compared, in the words of etcd's client: "ModRevision", "Version".
	Field string
	// Key is the key that it is compared of.
	Key string
	// Operator is "=", "!=", "<" or ">".
	Operator string
	// Operand is what the field is compared with, such as "expectedRevision".
	Operand string
	// Expects is the operand in the words of the first step, such as "origState.rev".
	Expects string
}

// FieldName is the field in the words of etcd's API and of etcdctl, such as "mod_revision". The
// names are those of Compare.target_union in etcd's rpc.proto.
func (c Compare) FieldName() string {
	switch c.Field {
	case "ModRevision":
		return "mod_revision"
	case "CreateRevision":
		return "create_revision"
	case "LeaseValue":
		return "lease"
	default:
		return strings.ToLower(c.Field)
	}
}

// String is the comparison as the source writes it: Compare(ModRevision(key), "=", expected).
func (c Compare) String() string {
	return fmt.Sprintf("Compare(%s(%s), %q, %s)", c.Field, c.Key, c.Operator, c.Operand)
}

// Op is one operation of a branch of a transaction, in the words of the last step.
type Op struct {
	// Name is the operation in the words of etcd's client, such as "OpPut".
	Name string
	// Args are its arguments without conversions and options: the key, and the value of a put.
	Args []string
	// When is the condition under which the transaction contains the operation, such as
	// "GetOnFailure"; empty if it always does.
	When string
	// Sent says whether the condition is met by what the first step asks for.
	Sent Truth
}

// String is the operation as the source writes it, such as "OpGet(key), when GetOnFailure".
func (o Op) String() string {
	s := o.Name + "(" + strings.Join(o.Args, ", ") + ")"
	if o.When != "" {
		s += ", when " + o.When
	}
	return s
}

// Truth is an answer that the source may leave open.
type Truth int

// The answers. The zero value is that the source does not say.
const (
	Unknown Truth = iota
	No
	Yes
)

// String is "unknown", "no" or "yes".
func (t Truth) String() string { return [...]string{"unknown", "no", "yes"}[t] }

// Retry is what a step does when the transaction answers that its comparison failed.
type Retry struct {
	// In is the step, with the line where it looks at the answer.
	In Location
	// Func is the function that gets the current value from the answer, such as "(*store).getState".
	Func Location
	// From is the part of the answer that it gets, such as "txnResp.KV".
	From string
	// Again reports whether the step then begins its loop anew.
	Again bool
	// SecondRead is the function by which the step reads etcd once more before it goes on, such as
	// "(*store).getCurrentState"; empty if it does not, because the else branch read already.
	SecondRead string
}

// IsZero reports whether the failed comparison is not followed by anything of this kind.
func (r Retry) IsZero() bool { return r == Retry{} }

// String is the chain as a reader follows it, over several lines, without a newline at the end.
func (c Chain) String() string {
	if len(c.Steps) == 0 {
		return ""
	}
	var b strings.Builder
	for _, s := range c.Steps {
		fmt.Fprintln(&b, s.Location)
		if s.Calls != "" {
			fmt.Fprintf(&b, "  calls %s", s.Calls[strings.LastIndexByte(s.Calls, '.')+1:])
			if len(s.With) > 0 {
				fmt.Fprintf(&b, " with %s", strings.Join(s.With, ", "))
			}
			fmt.Fprintln(&b)
		}
	}
	for _, i := range c.If {
		fmt.Fprintf(&b, "  if   %s", i)
		if i.At.Func != c.Steps[len(c.Steps)-1].Func {
			fmt.Fprintf(&b, ", from %s", i.At.Func)
		}
		fmt.Fprintln(&b)
	}
	branch(&b, "then", c.Then)
	branch(&b, "else", c.Else)
	if r := c.Retry; !r.IsZero() {
		fmt.Fprintf(&b, "when the comparison failed, %s", r.In.Func)
		if r.Func != (Location{}) {
			fmt.Fprintf(&b, " calls %s with %s", r.Func.Func, r.From)
		} else {
			fmt.Fprint(&b, " does not use the value in the answer")
		}
		if r.Again {
			fmt.Fprint(&b, " and tries again")
		}
		if r.SecondRead != "" {
			fmt.Fprintf(&b, ", after a second read by %s", r.SecondRead)
		} else {
			fmt.Fprint(&b, ", without a second read")
		}
		fmt.Fprintln(&b)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// branch prints the operations of one branch.
func branch(b *strings.Builder, name string, ops []Op) {
	if len(ops) == 0 {
		fmt.Fprintf(b, "  %s nothing\n", name)
	}
	for _, o := range ops {
		fmt.Fprintf(b, "  %s %s", name, o)
		if o.Sent == No {
			fmt.Fprint(b, ": not asked for here")
		}
		fmt.Fprintln(b)
	}
}

// UpdateTransaction is the chain of an update: from (*store).GuaranteedUpdate of
// k8s.io/apiserver/pkg/storage/etcd3 to the comparison that lets the write happen.
func (t *Tree) UpdateTransaction(ctx context.Context) (Chain, error) {
	return t.Transaction(ctx, Func("k8s.io/apiserver/pkg/storage/etcd3", "(*store).GuaranteedUpdate"))
}
