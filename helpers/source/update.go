package source

import (
	"cmp"
	"context"
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"
)

// The two functions that make an update a transaction of etcd. Up to Kubernetes 1.31 there was only the first.
var (
	GuaranteedUpdate = Func("k8s.io/apiserver/pkg/storage/etcd3", "(*store).GuaranteedUpdate")
	OptimisticPut    = Func("go.etcd.io/etcd/client/v3/kubernetes", "Client.OptimisticPut")
)

// Update is what the source of one version says of an update.
type Update struct {
	Asked Asked
	Txn   Txn
	Retry Retry
}

// Asked is what GuaranteedUpdate hands on to OptimisticPut.
type Asked struct {
	// Lines are those of the call.
	Lines string
	// Revision is what it hands on as the expected revision, such as "origState.rev".
	Revision string
	// Options are the options that it sets to true, such as "GetOnFailure".
	Options []string
}

// Txn is the transaction that OptimisticPut builds, by the names that etcd's client has for its parts.
type Txn struct {
	// At is where OptimisticPut is declared.
	At Location
	// Lines are those that build the transaction.
	Lines string
	// Compare is the compare without the name of the package, such as
	// `Compare(ModRevision(key), "=", expectedRevision)`.
	Compare string
	// Field is what is compared, such as "ModRevision", and Operator how, such as "=".
	Field, Operator string
	// Then and Else are the operations of the branches, such as "OpPut" and "OpGet"; Else may be empty.
	Then, Else string
	// ElseIf is the option on which there is an else branch, such as "GetOnFailure".
	ElseIf string
}

// Retry is what GuaranteedUpdate does after a failed compare.
type Retry struct {
	// Lines are those that look at the answer.
	Lines string
	// From is the part of the answer that it goes on with, such as "txnResp.KV"; empty if there is none.
	From string
	// State is the variable that this becomes, such as "origState".
	State string
	// Again reports whether the loop then begins anew.
	Again bool
	// Reads are functions by which it reads once more before that.
	Reads []string
}

// FieldName is the field as etcd's API and etcdctl write it, such as "mod_revision".
func (t Txn) FieldName() string {
	return strings.ToLower(regexp.MustCompile(`([a-z])([A-Z])`).ReplaceAllString(t.Field, "${1}_$2"))
}

// String is the lines of the source that say how an update is compared.
func (u Update) String() string {
	return "The revision that an update hands on:\n" + u.Asked.Lines +
		"\n\nThe transaction that it becomes:\n" + u.Txn.Lines +
		"\n\nWhat comes after a failed compare:\n" + u.Retry.Lines
}

// UpdateTransaction reads what the source says of an update. If the code has moved, the error says
// which part of it is no longer there.
func (t *Tree) UpdateTransaction(ctx context.Context) (Update, error) {
	t.Load(ctx, GuaranteedUpdate, OptimisticPut)
	update, err := t.Declaration(ctx, GuaranteedUpdate)
	if err != nil {
		return Update{}, fmt.Errorf("reading which revision an update hands on: %w", err)
	}
	put, err := t.Declaration(ctx, OptimisticPut)
	if err != nil {
		return Update{}, fmt.Errorf("reading what an update compares: %w", err)
	}
	var u Update
	if u.Txn, err = readTxn(put); err != nil {
		return Update{}, fmt.Errorf("what an update compares, and does then, is no longer there: %w", err)
	}
	if u.Asked, err = readAsked(update); err != nil {
		return Update{}, fmt.Errorf("the revision that an update hands on is no longer there: %w", err)
	}
	if u.Retry, err = readRetry(update); err != nil {
		return Update{}, fmt.Errorf("what an update does after a failed compare is no longer there: %w", err)
	}
	return u, nil
}

// readTxn reads the transaction that a function builds.
func readTxn(put Declaration) (Txn, error) {
	condition, errIf := put.Call("If", 1)
	compare, errCompare := put.Call("Compare", 3)
	then, errThen := put.Call("Then", 1)
	if err := cmp.Or(errIf, errCompare, errThen); err != nil {
		return Txn{}, err
	}
	if condition.Args[0] != compare {
		return Txn{}, fmt.Errorf("%s does not build an If of that Compare", put)
	}
	txn := Txn{
		At:       put.Location,
		Lines:    put.Quote(then),
		Compare:  strings.ReplaceAll(put.Text(compare), "clientv3.", ""),
		Field:    Called(compare.Args[0]),
		Operator: strings.Trim(put.Text(compare.Args[1]), `"`),
		Then:     Called(then.Args[0]),
	}
	otherwise, err := put.Call("Else", 1)
	if err != nil {
		return txn, nil
	}
	txn.Else = Called(otherwise.Args[0])
	if option, ok := Around[*ast.IfStmt](put, otherwise); ok {
		txn.ElseIf = last(put.Text(option.Cond))
		txn.Lines = put.Quote(then, option)
	}
	return txn, nil
}

// readAsked reads what update hands on to OptimisticPut.
func readAsked(update Declaration) (Asked, error) {
	call, err := update.Call("OptimisticPut", 5)
	if err != nil {
		return Asked{}, err
	}
	asked := Asked{Lines: update.Quote(call), Revision: update.Text(call.Args[3])}
	for n := range ast.Preorder(call) {
		if option, ok := n.(*ast.KeyValueExpr); ok && update.Text(option.Value) == "true" {
			asked.Options = append(asked.Options, update.Text(option.Key))
		}
	}
	return asked, nil
}

// readRetry reads what update does when OptimisticPut answers that the compare has failed.
func readRetry(update Declaration) (Retry, error) {
	answer := ""
	for n := range ast.Preorder(update.Syntax) {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if Called(n.Rhs[0]) == "OptimisticPut" {
				answer = update.Text(n.Lhs[0])
			}
		case *ast.IfStmt:
			if update.Text(n.Cond) == "!"+answer+".Succeeded" {
				return readFailed(update, n, answer), nil
			}
		}
	}
	return Retry{}, fmt.Errorf("%s has no if statement for an answer of OptimisticPut that has not Succeeded", update)
}

// readFailed reads the statement of update that is run when the compare has failed.
func readFailed(update Declaration, failed *ast.IfStmt, answer string) Retry {
	var retry Retry
	shown := []ast.Node{failed.Cond}
	for n := range ast.Preorder(failed.Body) {
		switch n := n.(type) {
		case *ast.CallExpr:
			if !strings.HasPrefix(strings.ToLower(Called(n)), "get") {
				break
			}
			i := slices.IndexFunc(n.Args, func(a ast.Expr) bool { return strings.HasPrefix(update.Text(a), answer+".") })
			assign, ok := Around[*ast.AssignStmt](update, n)
			if i < 0 || !ok {
				retry.Reads = append(retry.Reads, Called(n))
				break
			}
			retry.From, retry.State = update.Text(n.Args[i]), update.Text(assign.Lhs[0])
			shown = append(shown, assign)
		case *ast.BranchStmt:
			retry.Again = retry.Again || n.Tok == token.CONTINUE
			shown = append(shown, n)
		}
	}
	retry.Lines = update.Quote(shown...)
	return retry
}
