# Ends what a control plane has left running, as soon as the process that started it is gone. $1 is the
# folder of the control plane. Standard input is a pipe whose other end only that process holds: it ends
# when the process does, however that came about.
trap '' INT TERM HUP
PATH=$PATH:/usr/bin:/bin
cd / || exit 1
folder=$1
while read -r _; do :; done

# A kube-apiserver that has written its process id starts only while this file is there. So each one
# either is found below or never starts.
rm -f "$folder/alive"

# arguments prints the command line of process $1.
arguments() {
	if [ -r "/proc/$1/cmdline" ]; then
		tr '\0' ' ' <"/proc/$1/cmdline"
	else
		ps -ww -p "$1" -o command=
	fi 2>/dev/null
}

# ours says whether process $1 is a kube-apiserver of this folder: process ids are used again, the name of
# the folder is not. A process that is just replacing its program has no arguments for a moment.
ours() {
	tries=0
	while kill -0 "$1" 2>/dev/null && [ "$tries" -lt 20 ]; do
		case $(arguments "$1") in
		*"--cert-dir=$folder/"*) return 0 ;;
		'') sleep 0.05; tries=$((tries + 1)) ;;
		*) return 1 ;;
		esac
	done
	return 1
}

for file in "$folder"/pids/*; do
	[ -f "$file" ] || continue
	read -r pid <"$file" || continue
	tries=0
	while ours "$pid" && [ "$tries" -lt 100 ]; do
		kill -9 "$pid" 2>/dev/null
		sleep 0.02
		tries=$((tries + 1))
	done
done

# Links into the folder from elsewhere go with it; what somebody else has put there meanwhile stays.
if [ -f "$folder/links" ]; then
	while read -r link; do
		case $(readlink "$link") in
		"$folder"/*) rm -f "$link" ;;
		esac
	done <"$folder/links"
fi

tries=0
while [ -d "$folder" ] && [ "$tries" -lt 50 ]; do
	rm -rf "$folder" 2>/dev/null
	[ -d "$folder" ] && sleep 0.05
	tries=$((tries + 1))
done
