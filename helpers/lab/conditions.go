package lab

// WithCondition is a copy of an object with one condition more in its status, of the given type and true.
func WithCondition(o *Object, condition string) *Object {
	o = o.DeepCopy()
	status, _ := o.Object["status"].(map[string]any)
	if status == nil {
		status = map[string]any{}
		o.Object["status"] = status
	}
	list, _ := status["conditions"].([]any)
	status["conditions"] = append(list, map[string]any{"type": condition, "status": "True"})
	return o
}

// Conditions are the types of the conditions in an object's status, in order.
func Conditions(o *Object) []string {
	var out []string
	for _, c := range conditionsOf(o) {
		if typ, ok := c["type"].(string); ok {
			out = append(out, typ)
		}
	}
	return out
}
