package lab

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TryApply applies an object of which only the given fields are set, by server-side apply, as the field
// manager named. With force, what other managers own is taken over.
func (c *Client) TryApply(name, manager string, force bool, fields ...string) (*Object, error) {
	o := &Object{Object: map[string]any{}}
	o.SetGroupVersionKind(c.kind.GVK())
	o.SetName(name)
	c.kind.set(o, fields...)
	body, err := json.Marshal(o.Object)
	if err != nil {
		return nil, fmt.Errorf("encoding what is to be applied: %w", err)
	}
	return c.TryPatchWith(name, types.ApplyPatchType, string(body),
		metav1.PatchOptions{FieldManager: manager, Force: &force})
}
