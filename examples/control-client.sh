#!/bin/sh
# A client of Caisson's control channel in plain POSIX shell: it needs printf,
# mv, rm and sleep. docs/control-protocol.md describes what it does, and what
# `caisson-guest ctl` does better: this one looks for an answer once a second.
#
#   control-client.sh VERB [INPUT]     INPUT is a JSON object
#
# Prints the answer. Exit status: 0 done, 1 failed, 2 not a valid request, 75 safe
# to try again, 76 begun and its outcome is not known, 77 refused.
set -u
umask 077
dir=${CAISSON_CONTROL:-/run/caisson}

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
	echo "usage: $0 VERB [INPUT]" >&2
	exit 2
fi
case $1 in *[!a-z0-9._-]*)
	echo "$0: a verb has a-z, 0-9, ., _ and - only" >&2
	exit 2
	;;
esac

# number LINE KEY sets $number to the first number by that key: files are of one
# line, their keys come in the order of the documentation, and a quote within a
# text has a backslash before it.
number() {
	number=${1#*\""$2"\":}
	[ "$number" != "$1" ] || return 1
	number=${number%%[!0-9]*}
}

if ! read -r identity <"$dir/public/identity.json" || ! read -r status <"$dir/public/status.json"; then
	echo "$0: there is no control channel at $dir, or it is not ready" >&2
	exit 75
fi
number "$identity" generation && generation=$number &&
	number "$status" epoch && epoch=$number &&
	read -r id </proc/sys/kernel/random/uuid || exit 1

requests=$dir/channel/requests
answer=$dir/public/responses/$id
if ! printf '{"version":1,"id":"%s","generation":%s,"epoch":%s,"wait":10000,"verb":"%s","input":%s}\n' \
	"$id" "$generation" "$epoch" "$1" "${2-{\}}" >"$requests/.$id.tmp" ||
	! mv "$requests/.$id.tmp" "$requests/$id.json"; then
	rm -f "$requests/.$id.tmp"
	exit 75
fi

# Seconds are counted by sleeping, not read from a clock, which may jump.
waited=0
taken=
while [ ! -e "$answer.json" ]; do
	[ ! -e "$answer.accepted.json" ] || taken=yes
	if [ -z "$taken" ] && [ "$waited" -ge "${CAISSON_WAIT:-10}" ]; then
		if rm "$requests/$id.json" 2>/dev/null; then
			echo "$0: nobody took the request; it was taken back" >&2
			exit 75
		fi
		taken=yes # only its end can tell now: never send it again
	fi
	sleep 1
	waited=$((waited + 1))
done

read -r line <"$answer.json"
printf '%s\n' "$line"
state=${line#*\"state\":\"}
state=${state%%\"*}
number "$line" exit || exit 76
case $state:$number in
completed:0) exit 0 ;;
rejected:2 | rejected:75 | rejected:76 | rejected:77) exit "$number" ;;
*) exit 1 ;;
esac
