# shellcheck shell=bash
# source usage.sh LEAST "$@": ends the script that sources it, and prints the comment at its head,
# if the script's first argument is -h or --help, or if it has fewer than LEAST arguments.
case ${2:-} in
  -h | --help) code=0 ;;
  *) code=2 ;;
esac
if [ $code = 0 ] || [ $(($# - 1)) -lt "$1" ]; then
  script=$0
  [ -f "$script" ] || script=$(find profiling/ -name "$(basename "$0")") # after a cd to the root
  sed -n '2,/^set /{/^set /d; s/^# \{0,1\}//p}' "$script"
  exit $code
fi
unset code
